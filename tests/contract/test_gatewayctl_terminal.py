"""What `gatewayctl` prints at a terminal: nothing of it moves the cursor or hides a text."""

import ast
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gateway_api.cli.ctl
from gateway_api.cli.ctl.texts import line
from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Shell, Terminal

pytestmark = pytest.mark.slow

#: Clears the screen, colours in two ways, hides and turns text.
EVIL = "\x1b[2J\x07\x7f\x9b31m\u202e\u2066\u200b\u2028\nforged"
ESCAPED = line(EVIL)
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


def is_safe(terminal: Terminal) -> bool:
    """Colours are off."""
    return all(letter.isprintable() or letter in "\r\n" for letter in terminal.shown)


@pytest.fixture
def plain(shell: Shell) -> Shell:
    shell.environment["NO_COLOR"] = "1"
    return shell


@pytest.mark.parametrize(
    "command",
    [
        "subscribers list --limit 3", "subscribers show 812", "subscribers find 81", "subscribers top",
        "subscribers history --limit 3", "subscribers timeline 812", "subscribers disconnect 812 --dry-run",
        "interfaces", "vlans --limit 3", "qos --limit 3", "routes --limit 3", "bgp", "cgnat --limit 3",
        "demux --limit 3", "demux --config", "health", "health --detail", "version", "audit --limit 3",
        "config show", "config archive", "users list", "webhooks list", "jobs list", "backup -",
    ],
)  # fmt: skip
def test_no_table_lets_a_name_move_the_cursor(gateway: Gateway, plain: Shell, command: str) -> None:
    with evil(gateway, plain):
        terminal = plain.at_terminal(*command.split(), columns=400, lines=500)
        if command.endswith("top"):
            terminal.expect("forged")
            terminal.type("\x03")
        terminal.end()
    # The picture is drawn with these.
    terminal.shown = re.sub("\x1b\\[[HKJ]", "", terminal.shown)
    assert is_safe(terminal)
    assert "\nforged" not in terminal.shown


@pytest.mark.parametrize("format", ["csv", "jsonpath=$..username", "jsonpath=$[0]", "json", "wide"])
def test_no_format_lets_a_name_move_the_cursor(gateway: Gateway, plain: Shell, format: str) -> None:
    command = ("subscribers", "list", "--limit", "3", "-o", format)
    with evil(gateway, plain):
        terminal = plain.at_terminal(*command)
        assert terminal.end() == 0
        piped = plain.done(*command)
    assert is_safe(terminal)
    assert ESCAPED.removesuffix("forged").rpartition("\\")[0] in terminal.shown
    assert "\r\nforged" not in terminal.shown
    if format in ("csv", "jsonpath=$..username"):
        assert EVIL in piped
    if format == "json":
        assert json.loads(terminal.shown) == json.loads(piped)
        assert [each["username"].endswith(EVIL) for each in json.loads(piped)] == [True] * 3


@pytest.mark.parametrize("format", ["table", "csv", "json", "jsonpath=$.username"])
def test_no_event_moves_the_cursor(gateway: Gateway, plain: Shell, format: str) -> None:
    data = {"id": 1, "username": EVIL, "reason": EVIL, "at": 1}
    stream = f"id: a-1\nevent: session_down\ndata: {json.dumps(data)}\n\n".encode()

    def reply(method: str, path: str) -> Reply:
        return 200, stream if "events" in path else {"status": "ok", "data": {}}

    with gateway.replaced(reply) as url:
        plain.environment["GATEWAY_URL"] = url
        terminal = plain.at_terminal("-o", format, "events")
        terminal.expect("forged")
        terminal.type("\x03")
        terminal.end()
        with plain.started("-o", format, "events") as running:
            running.wait_for("forged")
            running.end()
    assert is_safe(terminal)
    assert "\nforged" not in terminal.shown
    if format in ("csv", "jsonpath=$.username"):
        assert EVIL in running.out


def test_no_message_moves_the_cursor(gateway: Gateway, plain: Shell) -> None:
    with gateway.replaced(lambda *_: (400, {"status": "error", "message": EVIL, "hint": EVIL})) as url:
        plain.environment["GATEWAY_URL"] = url
        terminal = plain.at_terminal("subscribers", "list")
        assert terminal.end() == 1
    assert is_safe(terminal)
    assert terminal.shown.count(ESCAPED) == 2


def test_an_event_has_a_dash_where_there_is_nothing(gateway: Gateway, plain: Shell) -> None:
    data = {"id": 7, "username": "", "reason": None, "at": 1, "mac_address": None, "access_interface": ""}
    stream = f"id: a-1\nevent: session_down\ndata: {json.dumps(data)}\n\n".encode()

    def reply(method: str, path: str) -> Reply:
        return 200, stream if "events" in path else {"status": "ok", "data": {}}

    with gateway.replaced(reply) as url:
        plain.environment["GATEWAY_URL"] = url
        with plain.started("events") as running:
            running.wait_for("down")
            running.end()
    assert running.out.splitlines()[0].split()[2:] == ["down", "7", "-", "-", "-", "-", "-"]


@pytest.mark.parametrize("beginning", ["", "s"])
def test_no_completion_moves_the_cursor(gateway: Gateway, plain: Shell, beginning: str) -> None:
    words = f"gatewayctl subscribers show {beginning}"
    with evil(gateway, plain):
        plain.environment |= {
            "_GATEWAYCTL_COMPLETE": "zsh_complete", "COMP_WORDS": words, "COMP_CWORD": "3",
        }  # fmt: skip
        offered = plain.done().strip().splitlines()
    assert bool(offered) is (beginning == "")
    assert all(each.isprintable() and each != "forged" for each in offered)


def test_no_argument_moves_the_cursor(plain: Shell) -> None:
    name = EVIL.replace("\n", "")
    for command in (("subscribers", name), ("-o", name, "vlans"), ("subscribers", "history", "--type", name)):
        terminal = plain.at_terminal(*command)
        assert terminal.end() == 2
        assert is_safe(terminal)


def test_half_a_character_is_no_traceback(gateway: Gateway, plain: Shell) -> None:
    data = b'{"status": "ok", "data": {"product": "a\\ud800b"}}'
    with gateway.replaced(lambda *_: (200, data)) as url:
        plain.environment["GATEWAY_URL"] = url
        assert json.loads(plain.done("-o", "json", "version")) == {"product": "a\ud800b"}
        assert plain.done("-o", "jsonpath=$.product", "version") == "a\\ud800b\n"


def test_one_module_prints() -> None:
    """What is printed past it would not be safe."""
    folder = Path(gateway_api.cli.ctl.__path__[0])
    found = {
        file.name
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in {"echo", "secho", "echo_via_pager"})
        or (isinstance(node, ast.Name) and node.id == "print")
        or (isinstance(node, ast.Attribute) and node.attr == "write" and "std" in ast.unparse(node))
    }
    assert found == {"terminal.py"}
