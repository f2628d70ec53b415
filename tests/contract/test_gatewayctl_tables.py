"""Tables of `gatewayctl` at terminals of several widths: a value is whole, or not there."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import click
import pytest

from gateway_api.cli.ctl.__main__ import gatewayctl
from tests.support.by_api import commit, disconnect, set_value, with_a_name
from tests.support.histories import down, failed, remember, remember_failures
from tests.support.running_gateway import Gateway
from tests.support.shell import Shell

USAGE = 2
WIDTHS = (40, 60, 80, 100, 150)
LONG = "2001:db8:1111:2222:3333:4444:5555:6666"

#: The words of each command that prints a table, and the fields that tell a row from others.
TABLES = {
    "audit": ("--limit 20", ("user",)),
    "bgp": ("", ("address", "state")),
    "cgnat": ("--sort -id --limit 30", ("id", "username")),
    "config archive": ("", ("revision",)),
    "contexts list": ("", ("name", "url")),
    "demux": ("--limit 30", ("name",)),
    "faults": ("", ("kind", "object")),
    "health --detail": ("", ("name", "state")),
    "interfaces": ("--sort -name --limit 30", ("name",)),
    "jobs list": ("", ("id", "kind", "state")),
    "qos": ("--sort -session_id --limit 30", ("session_id", "username")),
    "qos --profiles": ("", ("name",)),
    "routes": ("--limit 30", ("dst",)),
    "subscribers failed-sign-ons": ("", ("username", "mac_address")),
    "subscribers find": ("812", ("id", "username")),
    "subscribers flapping": ("", ("username",)),
    "subscribers history": ("--limit 30", ("id", "username")),
    "subscribers list": ("--sort -id --limit 30", ("id", "username")),
    "subscribers timeline": ("somebody", ()),
    "traffic": ("", ()),
    "users list": ("", ("username", "role")),
    "vlans": ("--limit 30", ("name",)),
    "webhooks deliveries": ("WEBHOOK", ("result",)),
    "webhooks list": ("", ("id", "url")),
    # Those that show one record.
    "cgnat --stats": ("", ()),
    "demux --config": ("", ()),
    "health": ("", ()),
    "jobs show": ("JOB", ()),
    "status": ("", ()),
    "subscribers show": ("812", ()),
    "subscribers summary": ("", ()),
    "subscribers disconnect": ("812 --dry-run", ()),
    "version": ("", ()),
    "webhooks show": ("WEBHOOK", ()),
}
#: Those that print a text, or a table again and again.
OTHERS = {
    "backup", "config commit", "config compare", "config confirm", "config delete", "config discard",
    "config edit", "config rollback", "config set", "config show", "events", "jobs cancel", "restore",
    "subscribers rate", "subscribers top", "subscribers watch", "users add", "users logout",
    "users password", "users remove", "users role", "webhooks add", "webhooks remove", "webhooks test",
}  # fmt: skip


def commands(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}".strip())
    else:
        yield path, command


def test_every_command_with_formats_is_tried() -> None:
    formatted = {
        path for path, command in commands(gatewayctl) if any(p.name == "output" for p in command.params)
    }
    assert formatted == {name.partition(" --")[0] for name in TABLES} | OTHERS


@pytest.fixture(scope="module")
def made(gateway: Gateway) -> dict[str, str]:
    """Records for each table, and the ids of a webhook and a job."""
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
    job = gateway.api.send("POST", "/subscribers/rate", json=body).json()["data"]
    return {"WEBHOOK": webhook["id"], "JOB": str(job["id"])}


#: Times, durations, and numbers with a unit: made of other numbers of the record.
MADE = re.compile(
    r"\d{4}-\d\d-\d\d\s+\d\d:\d\d:\d\d[+-]\d\d:\d\d|(\d+ days?,\s+)?(?<![:.\w])\d+:\d\d:\d\d\b(?![:.])"
    r"|\d+(\.\d+)? ([kMGT]?bit/s|[kMGTP]?B\b)"
)


def tokens(document: Any) -> Iterator[str]:
    """All words of all values of a document, and addresses with the length of their prefix."""
    if isinstance(document, dict):
        if "prefix_length" in document:
            yield f"{document['address']}/{document['prefix_length']}"
        for key, value in document.items():
            yield key
            yield from tokens(value)
    elif isinstance(document, list):
        for value in document:
            yield from tokens(value)
    else:
        for text in (json.dumps(document, ensure_ascii=False), str(document)):
            yield from (word.rstrip(":;.") for word in re.split(r'[\s,"\[\]{}]+', text))
            yield from text.split()


def cut(shown: list[str], known: set[str]) -> set[str]:
    """The words with digits that are shown and stand in no value."""
    words = re.split(r'[\s,"\[\]{}]+', MADE.sub(" ", "\n".join(shown)))
    digits = {word.rstrip(":;.") for word in words if re.search(r"\d", word)}
    return digits - known - {"IPv6", "IPV6"}


@pytest.mark.parametrize("name", TABLES)
def test_what_a_table_shows_of_an_id_or_address_is_whole(
    admin: Shell, made: dict[str, str], name: str
) -> None:
    words, identity = TABLES[name]
    command = [*name.split(), *(made.get(word, word) for word in words.split())]
    # The status of a gateway with a warning, such as that of a slow machine, is not 0.
    records = json.loads(admin.run("-o", "json", *command).out)
    heads = admin.run(*command).out.partition("\n")[0].split()
    for columns in WIDTHS:
        shown = admin.shown(*command, columns=columns)
        notes = [line for line in shown if line.startswith("gatewayctl: ")]
        # Packets are counted on.
        lines = [line for line in shown if line not in notes and not line.startswith("Packets ")]
        assert cut(lines, set(tokens(records))) == set(), columns
        there = set(re.split(r"[\s,]+", " ".join(lines)))
        for record in records if identity else ():
            assert {str(record[field]) for field in identity if record[field]} <= there, columns
        assert [line for line in lines if len(line) > columns and " " in line.strip()] == [], columns
        if identity and lines and lines[0].isupper() and lines[0].split() != heads:
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
