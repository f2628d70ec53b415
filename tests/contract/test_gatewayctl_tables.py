"""What `gatewayctl` prints at terminals of any width: whole values, of which none moves the cursor."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gatewayctl.texts import escape
from tests.support.by_api import commit, disconnect, set_value, with_a_name
from tests.support.histories import down, failed, remember, remember_failures
from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Shell
from tests.support.stack import wait_for

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


#: Clears the screen, colours in two ways, hides and turns text.
EVIL = "\x1b[2J\x07\x7f\x9b31m\u202e\u2066\u200b\u2028\nforged"
ESCAPED = escape(EVIL)
#: Values that the command reads; another text would be an error.
_MEANT = {"status", "next_cursor", "state", "result"}


def spoiled(value: Any, name: str = "") -> Any:
    """A document in which each text has evil characters."""
    if isinstance(value, dict):
        return {key: spoiled(held, key) for key, held in value.items()}
    if isinstance(value, list):
        return [spoiled(held, name) for held in value]
    return f"{value}{EVIL}" if isinstance(value, str) and name not in _MEANT else value


@contextmanager
def evil(gateway: Gateway, shell: Shell) -> Iterator[None]:
    """The records of the gateway, with evil texts, are those of another one."""

    def reply(method: str, path: str) -> Reply:
        found = gateway.api.send(method, path.removeprefix("/api/v1"))
        return found.status_code, spoiled(found.json())

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        yield


def is_safe(text: str) -> bool:
    """Colours are off."""
    return all(letter.isprintable() or letter in "\r\n" for letter in text)


@pytest.fixture
def plain(shell: Shell) -> Shell:
    shell.environment["NO_COLOR"] = "1"
    return shell


@pytest.mark.parametrize(
    "command",
    [
        "subscribers list --limit 3", "subscribers show 812", "subscribers find 81",
        "subscribers history --limit 3", "subscribers timeline 812", "subscribers disconnect 812 --dry-run",
        "interfaces", "vlans --limit 3", "qos --limit 3", "routes --limit 3", "bgp", "cgnat --limit 3",
        "demux --limit 3", "demux --config", "health", "health --detail", "version", "audit --limit 3",
        "config show", "config archive", "users list", "webhooks list", "jobs list", "backup -",
        "subscribers list --limit 3 -o csv", "subscribers list --limit 3 -o wide",
        "subscribers list --limit 3 -o jsonpath=$..username", "subscribers list --limit 3 -o jsonpath=$[0]",
    ],
)  # fmt: skip
def test_no_table_lets_a_name_move_the_cursor(gateway: Gateway, plain: Shell, command: str) -> None:
    if "timeline" in command:
        # The history has the session a moment later.
        query = {"search": "id:812"}
        wait_for("it", lambda: gateway.api.get("/subscribers/history", params=query)["sessions"])
    with evil(gateway, plain):
        shown = plain.shown(*command.split(), columns=400)
    assert is_safe("".join(shown))
    assert not any(each.startswith("forged") for each in shown)
    assert any("forged" in each for each in shown) or command in ("webhooks list", "jobs list")


def test_a_program_reads_the_texts_as_they_are(gateway: Gateway, plain: Shell) -> None:
    command = ("subscribers", "list", "--limit", "3", "-o")
    with evil(gateway, plain):
        terminal = plain.at_terminal(*command, "json")
        assert terminal.end() == 0
        piped = plain.done(*command, "json")
        for format in ("csv", "jsonpath=$..username"):
            assert EVIL in plain.done(*command, format)
    assert is_safe(terminal.shown)
    assert json.loads(terminal.shown) == json.loads(piped)
    assert [each["username"].endswith(EVIL) for each in json.loads(piped)] == [True] * 3


def test_no_completion_or_argument_moves_the_cursor(gateway: Gateway, plain: Shell) -> None:
    name = EVIL.replace("\n", "")
    for command in (("subscribers", name), ("-o", name, "vlans"), ("subscribers", "history", "--type", name)):
        ended = plain.run(*command)
        assert (ended.status, is_safe(ended.err)) == (2, True)
    words = {"COMP_WORDS": "gatewayctl subscribers show ", "COMP_CWORD": "3"}
    plain.environment |= {"_GATEWAYCTL_COMPLETE": "zsh_complete", **words}
    with evil(gateway, plain):
        offered = plain.done().strip().splitlines()
    assert offered
    assert all(each.isprintable() and each != "forged" for each in offered)


@pytest.mark.parametrize("format", ["table", "csv"])
def test_no_event_moves_the_cursor(gateway: Gateway, plain: Shell, format: str) -> None:
    data = {"id": 1, "username": EVIL, "reason": EVIL, "at": 1}
    stream = f"id: a-1\nevent: session_down\ndata: {json.dumps(data)}\n\n".encode()

    with gateway.replaced(
        lambda _, path: (200, stream if "events" in path else {"status": "ok", "data": {}})
    ) as url:
        plain.environment["GATEWAY_URL"] = url
        terminal = plain.at_terminal("-o", format, "events")
        terminal.expect("forged")
        terminal.type("\x03")
        assert terminal.end() == 130
        with plain.started("-o", format, "events") as running:
            running.wait_for("forged")
    assert is_safe(terminal.shown)
    assert "\nforged" not in terminal.shown
    assert (EVIL in running.out) is (format == "csv")


def test_no_message_moves_the_cursor(gateway: Gateway, plain: Shell) -> None:
    with gateway.replaced(lambda *_: (400, {"status": "error", "message": EVIL, "hint": EVIL})) as url:
        plain.environment["GATEWAY_URL"] = url
        ended = plain.run("subscribers", "list")
    assert (ended.status, ended.err.count(ESCAPED), is_safe(ended.err)) == (1, 2, True)
    # Half a character is escaped, too.
    half = b'{"status": "ok", "data": {"product": "a\\ud800b"}}'
    with gateway.replaced(lambda *_: (200, half)) as url:
        plain.environment["GATEWAY_URL"] = url
        assert json.loads(plain.done("-o", "json", "version")) == {"product": "a\ud800b"}
        assert plain.done("-o", "jsonpath=$.product", "version") == "a\\ud800b\n"


# Tables that are shown again and again


def pictures(shown: str) -> list[list[str]]:
    """The lines of each picture at a terminal, but of one that is not complete yet."""
    text = re.sub("\x1b\\[(K|[0-9]*m)", "", shown.replace("\r\n", "\n"))
    return [each.removeprefix("\x1b[H").splitlines() for each in text.split("\x1b[J")[:-1]]


def test_the_most_traffic_is_shown_anew_until_ctrl_c_also_after_a_failure(
    gateway: Gateway, plain: Shell
) -> None:
    replies = iter([200, 200, 500, 200])

    def reply(method: str, path: str) -> Reply:
        if next(replies, 200) != 200:
            return 500, {"status": "error", "message": "Core daemon unreachable"}
        found = gateway.api.send(method, path.removeprefix("/api/v1"))
        return 200, spoiled(found.json())

    with gateway.replaced(reply) as url:
        plain.environment["GATEWAY_URL"] = url
        terminal = plain.at_terminal("subscribers", "top", "--limit", "50", columns=400, lines=12)
        while len(pictures(terminal.shown)) < 4:
            assert terminal.read()
        terminal.type("\x03")
        assert terminal.end() == 0
    first, second, failed, again = pictures(terminal.shown)[:4]
    assert first[0].endswith("every 2 s; Ctrl-C ends")
    assert first[0] != second[0]
    for picture in (first, second, again):
        assert picture[1].split()[:2] == ["ID", "USERNAME"]
        assert (len(picture), picture[-1]) == (11, "42 more lines have no room")
        assert is_safe("".join(picture))
    assert any("Core daemon unreachable" in each for each in failed)


def test_a_terminal_without_a_cursor_shows_the_most_traffic_once(operator: Shell) -> None:
    operator.environment["TERM"] = "dumb"
    terminal = operator.at_terminal("subscribers", "top", "--limit", "2", columns=150, lines=24)
    assert terminal.end() == 0
    assert len(terminal.shown.splitlines()) == 3
    # One that does not reply at all ends the table.
    del operator.environment["TERM"]
    operator.environment["GATEWAY_URL"] = "https://localhost:1"
    assert operator.at_terminal("subscribers", "top", columns=80, lines=24).end() == 3


def test_the_traffic_of_a_session_is_watched_until_its_end(gateway: Gateway, shell: Shell) -> None:
    sample = {"at": 1772331180, "down_bps": 5_213_400, "up_bps": 999, "down_pps": 3, "up_pps": 2}
    traffic, end = f"event: traffic\ndata: {json.dumps(sample)}\n\n", "event: ended\ndata: {}\n\n"
    away = 500, {"status": "error", "message": "Core daemon unreachable"}

    def watch(*options: str) -> tuple[str, str]:
        replies: list[Reply] = [(200, traffic.encode()), away, (200, f"{traffic}{end}".encode())]

        def reply(method: str, path: str) -> Reply:
            return replies.pop(0) if path.endswith("/traffic") else (200, {"status": "ok", "data": {"id": 7}})

        with gateway.replaced(reply) as url:
            shell.environment["GATEWAY_URL"] = url
            ended = shell.run("subscribers", "watch", "id:7", *options)
        assert ended.status == 0
        return ended.out, ended.err

    out, err = watch()
    line = "2026-03-01 02:13:00+00:00  down 5.21 Mbit/s  up 999.00 bit/s  3 / 2 packets/s\n"
    assert out == 2 * line
    assert err.splitlines() == [
        "gatewayctl: the stream has ended; watching again",
        "gatewayctl: Core daemon unreachable (request unknown); watching again",
        "gatewayctl: session 7 has ended",
    ]
    out, _ = watch("-o", "json")
    assert [json.loads(line)["down_bps"] for line in out.splitlines()] == [5_213_400] * 2
