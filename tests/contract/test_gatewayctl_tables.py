"""Tables of `gatewayctl` at terminals of several widths: a value is whole, or not there."""

import json
import re
import time
from typing import Any

import pytest

from tests.support.by_api import commit, disconnect, set_value, with_a_name
from tests.support.histories import down, failed, remember, remember_failures
from tests.support.running_gateway import Gateway
from tests.support.shell import Shell

USAGE = 2
LONG = "2001:db8:1111:2222:3333:4444:5555:6666"

#: The words of each command that prints a table, and the fields that tell a row from others.
TABLES = {
    "audit --limit 20": ("user",),
    "bgp": ("address", "state"),
    "cgnat --sort -id --limit 30": ("id", "username"),
    "config archive": ("revision",),
    "contexts list": ("name", "url"),
    "demux --limit 30": ("name",),
    "faults": ("kind", "object"),
    "health --detail": ("name", "state"),
    "interfaces --sort -name --limit 30": ("name",),
    "jobs list": ("id", "kind", "state"),
    "qos --sort -session_id --limit 30": ("session_id", "username"),
    "qos --profiles": ("name",),
    "routes --limit 30": ("dst",),
    "subscribers failed-sign-ons": ("username", "mac_address"),
    "subscribers find 812": ("id", "username"),
    "subscribers flapping": ("username",),
    "subscribers history --limit 30": ("id", "username"),
    "subscribers list --sort -id --limit 30": ("id", "username"),
    "users list": ("username", "role"),
    "vlans --limit 30": ("name",),
    "webhooks deliveries WEBHOOK": ("result",),
    "webhooks list": ("id", "url"),
}


@pytest.fixture(scope="module")
def webhook(gateway: Gateway) -> str:
    """There are records for each table; the id of a webhook."""
    now = int(time.time())
    history = gateway.state / "history.sqlite"
    names = {"username": "somebody", "ip_address": None, "ipv6_address": LONG}
    for at in range(3):
        remember(history, down(900_812 + at, now - 600, now - 300, "lost_carrier", **names))
    remember_failures(history, failed(now - 60, username="somebody-with-a-long-name@customers.example"))
    set_value(gateway.api, "qos.default_down", "150mbit")
    commit(gateway.api)
    disconnect(gateway.api)
    body: dict[str, Any] = {"url": "http://127.0.0.1:9/a-long-path-of-a-receiver/of-events/of-subscribers"}
    webhook = gateway.api.send("POST", "/webhooks", json={**body, "events": ["session.up"]}).json()["data"]
    gateway.api.send("POST", f"/webhooks/{webhook['id']}/test")
    body = {"filter": {"username": with_a_name(gateway.api, 2)[1]["username"]}, "rate_down": "5mbit"}
    assert gateway.api.send("POST", "/subscribers/rate", json=body).ok
    id: str = webhook["id"]
    return id


@pytest.mark.parametrize("words", TABLES)
def test_what_tells_a_row_from_others_is_whole_at_any_width(admin: Shell, webhook: str, words: str) -> None:
    command = words.replace("WEBHOOK", webhook).split()
    # The status of a gateway with a warning, such as that of a slow machine, is not 0.
    records = json.loads(admin.run("-o", "json", *command).out)
    heads = admin.run(*command).out.partition("\n")[0].split()
    for columns in (40, 60, 100):
        shown = admin.shown(*command, columns=columns)
        notes = [line for line in shown if line.startswith("gatewayctl: ")]
        lines = [line for line in shown if line not in notes]
        there = set(re.split(r"[\s,]+", " ".join(lines)))
        for record in records:
            assert {str(record[field]) for field in TABLES[words] if record[field]} <= there, columns
        assert [line for line in lines if len(line) > columns and " " in line.strip()] == [], columns
        if lines and lines[0].isupper() and lines[0].split() != heads:
            assert [note.startswith("gatewayctl: columns left out: ") for note in notes] == [True], columns


def test_columns_that_are_left_out_are_named_on_standard_error(admin: Shell) -> None:
    command = ("subscribers", "find", "812")
    heads, _, note = admin.shown(*command, columns=60)
    assert heads.split() == ["ID", "USERNAME", "ADDRESS"]
    left_out = "type, interface, mac_address, access_interface, state, started"
    assert note == f"gatewayctl: columns left out: {left_out}; -o wide shows all, --columns chooses"
    assert admin.run(*command).err == ""
    shown = admin.shown(*command, "-o", "wide", columns=40)
    assert shown == admin.done(*command, "-o", "wide").splitlines()
    assert {"ACCESS", "VLAN", "MAC", "STARTED"} <= set(shown[0].split())


def test_columns_are_chosen_by_heads_or_fields(admin: Shell) -> None:
    command = ("subscribers", "list", "--sort", "-id", "--limit", "3")
    rows = [f"{each['mac_address']}  {each['id']}" for each in admin.json(*command)]
    for chosen in ("mac_address,id", "MAC-address, ID"):
        shown = admin.done(*command, "--columns", chosen).splitlines()
        assert shown == ["MAC ADDRESS        ID", *rows]
    (only,) = admin.done("subscribers", "summary", "--columns", "dhcp").splitlines()
    assert only.split()[0] == "DHCP"
    admin.has(admin.token, "second")
    shown = admin.done("--all", "vlans", "--limit", "1", "--columns", "name").splitlines()
    assert shown[0].split() == ["CONTEXT", "NAME"]
    narrow = admin.shown("--all", "health", columns=40)
    assert [line.split()[1] for line in narrow if line.startswith("Context")][1] == "second"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "vlans --columns name,colour",
            "there is no column 'colour'; the columns are name, trunk, outer_vlan,",
        ),
        ("vlans --columns name,,trunk", "must be names of columns, separated by commas"),
        ("-o json vlans --columns name", "--columns"),
        ("-o wide vlans --columns name", "--columns"),
        ("config show --columns name", "--columns"),
        ("--columns name config confirm", "--columns does not go with gatewayctl config confirm"),
        ("--columns name events", "--columns does not go with gatewayctl events"),
    ],
)
def test_columns_that_there_are_not_are_refused(admin: Shell, arguments: str, said: str) -> None:
    ended = admin.run(*arguments.split())
    assert (ended.status, ended.out) == (USAGE, "")
    assert said in ended.err
