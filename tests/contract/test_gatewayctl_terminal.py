"""What `gatewayctl` prints at a terminal: nothing of it moves the cursor or hides a text."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gatewayctl.texts import escape
from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Shell
from tests.support.stack import wait_for

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
