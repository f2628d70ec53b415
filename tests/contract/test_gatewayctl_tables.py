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
from tests.support.receivers import Receiver
from tests.support.running_gateway import Gateway
from tests.support.shell import Shell

pytestmark = pytest.mark.slow

USAGE = 2
WIDTHS = (40, 60, 80, 100, 150)
LONG = "2001:db8:1111:2222:3333:4444:5555:6666"

#: The words of each command that prints a table, and the fields without which nobody knows what a row is of.
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
}
#: Those that show one record.
SHEETS = {
    "cgnat --stats": "",
    "config archive": "1",
    "demux --config": "",
    "health": "",
    "jobs show": "JOB",
    "status": "",
    "subscribers show": "812",
    "subscribers summary": "",
    "version": "",
    "webhooks show": "WEBHOOK",
}
#: Those whose table is shown again and again.
REFRESHED = {"subscribers top"}
#: Those that print a text.
TEXTS = {
    "backup", "config commit", "config compare", "config confirm", "config delete", "config discard",
    "config edit", "config rollback", "config set", "config show", "events", "jobs cancel", "restore",
    "subscribers disconnect", "subscribers rate", "subscribers watch", "users add", "users logout",
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
    tried = {name.partition(" --")[0] for name in (*TABLES, *SHEETS)}
    assert formatted == tried | REFRESHED | TEXTS


@pytest.fixture(scope="module")
def busy(gateway: Gateway) -> Gateway:
    """A gateway with records for each table."""
    now = int(time.time())
    history = gateway.state / "history.sqlite"
    names = {"username": "somebody", "ip_address": None, "ipv6_address": LONG}
    for at in range(3):
        remember(history, down(900_812 + at, now - 600, now - 300, "lost_carrier", **names))
    remember_failures(history, failed(now - 60, username="somebody-with-a-long-name@customers.example"))
    set_value(gateway.api, "qos.default_down", "150mbit")
    commit(gateway.api)
    disconnect(gateway.api)
    return gateway


@pytest.fixture
def admin(busy: Gateway, admin: Shell) -> Shell:
    return admin


def made(shell: Shell, words: str) -> list[str]:
    """The words, with the id of a webhook or a job."""
    if "WEBHOOK" in words:
        with Receiver() as receiver:
            url = f"{receiver.url}/a-long-path-of-a-receiver/of-events/of-subscribers"
            id = shell.json("webhooks", "add", url)["id"]
            shell.run("webhooks", "test", id)
        words = words.replace("WEBHOOK", id)
    if "JOB" in words:
        chosen = with_a_name(shell.api, 2)[1]["username"]
        shell.done("subscribers", "rate", "--where", f"username={chosen}", "--down", "5mbit", "--yes")
        words = words.replace("JOB", "1")
    return words.split()


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
def test_what_a_table_shows_of_an_id_or_address_is_whole(admin: Shell, name: str) -> None:
    words, identity = TABLES[name]
    command = [*name.split(), *made(admin, words)]
    heads = admin.done(*command).partition("\n")[0]
    records = admin.json(*command)
    for columns in WIDTHS:
        shown = admin.shown(*command, columns=columns)
        notes = [line for line in shown if line.startswith("gatewayctl: ")]
        lines = [line for line in shown if line not in notes]
        assert cut(lines, set(tokens(records))) == set(), columns
        there = set(re.split(r"[\s,]+", " ".join(lines)))
        for record in records:
            assert {str(record[field]) for field in identity if record[field]} <= there, columns
        assert [line for line in lines if len(line) > columns and " " in line.strip()] == [], columns
        if lines and lines[0].isupper() and lines[0].split() != heads.split():
            assert [note.startswith("gatewayctl: columns left out: ") for note in notes] == [True], columns


@pytest.mark.parametrize("name", SHEETS)
def test_what_a_record_shows_of_an_id_or_address_is_whole(admin: Shell, name: str) -> None:
    command = [*name.split(), *made(admin, SHEETS[name])]
    record = admin.json(*command)
    for columns in WIDTHS:
        # Packets are counted on.
        lines = admin.shown(*command, columns=columns)
        shown = [line for line in lines if not line.startswith("Packets ")]
        assert cut(shown, set(tokens(record))) == set(), columns
        assert [line for line in shown if len(line) > columns and " " in line.strip()] == [], columns


def test_what_would_be_disconnected_is_whole(admin: Shell) -> None:
    record = admin.json("subscribers", "disconnect", "812", "--dry-run")
    for columns in WIDTHS:
        shown = admin.shown("subscribers", "disconnect", "812", "--dry-run", columns=columns)
        assert cut(shown, set(tokens(record))) == set(), columns
        assert "812" in " ".join(shown).split()


def test_a_table_that_is_shown_again_and_again_is_whole(admin: Shell) -> None:
    known = {*tokens(admin.json("subscribers", "list")), *tokens(admin.json("subscribers", "top"))}
    for columns in WIDTHS:
        terminal = admin.at_terminal("subscribers", "top", columns=columns, lines=60)
        terminal.expect("\x1b[J")
        terminal.type("\x03")
        terminal.end()
        picture = re.sub("\x1b\\[[0-9;]*[a-zA-Z]", "", terminal.shown.partition("\x1b[J")[0])
        first, *lines = picture.replace("\r\n", "\n").splitlines()
        assert first.endswith("every 2 s; Ctrl-C ends")
        assert cut([line for line in lines if "have no room" not in line], known) == set(), columns


def test_columns_that_are_left_out_are_named_on_standard_error(admin: Shell) -> None:
    command = ("subscribers", "find", "812")
    heads, _, note = admin.shown(*command, columns=60)
    assert heads.split() == ["ID", "USERNAME", "ADDRESS"]
    left_out = "type, interface, mac_address, access_interface, state, started"
    assert note == f"gatewayctl: columns left out: {left_out}; -o wide shows all, --columns chooses"
    assert admin.run(*command).err == ""


def test_a_wide_table_has_all_columns_at_any_width(admin: Shell) -> None:
    command = ("subscribers", "list", "--sort", "-id", "--limit", "3", "-o", "wide")
    shown = admin.shown(*command, columns=40)
    assert shown == admin.done(*command).splitlines()
    assert {"ACCESS", "VLAN", "MAC", "STARTED"} <= set(shown[0].split())


def test_columns_are_chosen_by_heads_or_fields(admin: Shell) -> None:
    command = ("subscribers", "list", "--sort", "-id", "--limit", "3")
    for chosen in ("mac_address,id", "MAC-address, ID"):
        shown = admin.done(*command, "--columns", chosen).splitlines()
        rows = [f"{each['mac_address']}  {each['id']}" for each in admin.json(*command)]
        assert shown == ["MAC ADDRESS        ID", *rows]
    (only,) = admin.done("subscribers", "summary", "--columns", "dhcp").splitlines()
    assert only.split()[0] == "DHCP"


def test_an_unknown_column_is_refused_with_those_there_are(admin: Shell) -> None:
    ended = admin.run("vlans", "--columns", "name,colour")
    assert (ended.status, ended.out) == (USAGE, "")
    assert "there is no column 'colour'; the columns are name, trunk, outer_vlan, vlan, " in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "json", "vlans", "--columns", "name"),
        ("-o", "wide", "vlans", "--columns", "name"),
        ("vlans", "--columns", "name,,trunk"),
        ("config", "show", "--columns", "name"),
        ("--columns", "name", "config", "confirm"),
        ("--columns", "name", "events"),
    ],
    ids=" ".join,
)
def test_columns_without_a_table_are_refused(admin: Shell, arguments: tuple[str, ...]) -> None:
    ended = admin.run(*arguments)
    assert (ended.status, ended.out) == (USAGE, "")
    assert "--columns" in ended.err


def test_all_gateways_side_by_side_have_their_context_with_any_columns(admin: Shell) -> None:
    admin.has(admin.token, "second")
    shown = admin.done("--all", "vlans", "--limit", "1", "--columns", "name").splitlines()
    assert shown[0].split() == ["CONTEXT", "NAME"]
    narrow = admin.shown("--all", "health", columns=40)
    assert [line.split()[1] for line in narrow if line.startswith("Context")][1] == "second"
