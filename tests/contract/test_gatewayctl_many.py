"""`gatewayctl` over many gateways: labels, --all and --on, deadlines, exit statuses."""

import json
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.by_api import with_a_name
from tests.support.gateway_ports import Ports, many_gateways
from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Shell

NOTHING_FOUND, USAGE, ONE_FAILED, INTERRUPTED = 1, 2, 11, 130
NOBODY_ANSWERS = "https://localhost:1"
UNKNOWN_HOST = "https://gateway.invalid:8443"
#: As many as an operator has at most.
MANY = 100


@pytest.fixture(scope="module")
def ports(gateway: Gateway) -> Iterator[Ports]:
    port = int(gateway.api.url.rpartition(":")[2])
    with many_gateways(port, MANY, gateway.state) as ports:
        yield ports


@pytest.fixture
def many(operator: Shell) -> Shell:
    """An operator without a context."""
    operator.contexts.unlink()
    del operator.environment["GATEWAY_URL"]
    return operator


def knows(shell: Shell, **port_by_name: int) -> None:
    """Make contexts, each with a port of this machine."""
    for name, port in port_by_name.items():
        shell.has(shell.api.token("operator"), name, url=f"https://localhost:{port}")


def labelled(shell: Shell, label: str, *names: str) -> None:
    shell.done("contexts", "label", *names, "--add", label)


def without_sessions(method: str, path: str) -> Reply:
    """Answer as a gateway that has never had a subscriber."""
    return 200, {"status": "ok", "data": {"sessions": [], "failures": [], "next_cursor": None}}


# Labels


def test_a_login_labels_its_context_and_the_command_label_changes_the_labels(shell: Shell) -> None:
    given = ("--user", "operator", "--password-file", shell.password_file("operator"))
    for name, *labels in (("first", "west", "edge"), ("second", "west")):
        words = [word for label in labels for word in ("--label", label)]
        shown = shell.done("--context", name, "login", *given, *words)
        assert f"the labels of the context {name}: {', '.join(sorted(labels))}\n" in shown
    # A further login keeps the labels, and adds some without a need for a login, too.
    shell.done("--context", "second", "login", *given)
    shell.done("--context", "second", "login", "--if-needed", "--label", "new")
    shown = shell.done("contexts", "label", "first", "second", "--remove", "west", "--add", "lab")
    assert shown == "the labels of the context first: edge, lab\nthe labels of the context second: lab, new\n"
    assert {each["name"]: each["labels"] for each in shell.json("contexts", "list")} == {
        "first": ["edge", "lab"],
        "second": ["lab", "new"],
    }
    before = shell.contexts.read_text()
    ended = shell.run("contexts", "label", "first", "third", "--add", "west")
    assert (ended.status, ended.out) == (USAGE, "")
    assert "there is no context 'third'" in ended.err
    assert shell.contexts.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--on", "east", "health"), "no context has the label 'east'; known labels: west\n"),
        (("--on", "we st", "health"), "'we st' must be 1 to 64 letters, digits, - or _"),
        (("--on", "west", "config", "confirm"), "it is for one gateway"),
        (("health", "--deadline", "3"), "--deadline requires --all or --on."),
        (("health", "--all", "--deadline", "0"), "0 is not in the range 1<=x<=3600"),
    ],
)
def test_wrong_choices_are_refused_with_the_reason(
    many: Shell, ports: Ports, arguments: tuple[str, ...], reason: str
) -> None:
    knows(many, first=ports.forwarded[0])
    labelled(many, "west", "first")
    ended = many.run(*arguments)
    assert (ended.status, ended.out) == (USAGE, "")
    assert reason in ended.err


# Answers


def test_a_hundred_gateways_are_one_table_with_a_column_for_the_gateway(many: Shell, ports: Ports) -> None:
    (wanted,) = with_a_name(many.api, 1)
    names = [f"gateway{number}" for number in range(MANY)]
    knows(many, **dict(zip(names, ports.forwarded, strict=True)))
    labelled(many, "west", *names[::2])
    now = str(int(time.time()))
    for command in (
        ("subscribers", "find", wanted["mac_address"]),
        ("subscribers", "history", "--ip", wanted["ip_address"], "--at", now),
    ):
        for choice, chosen in ((("--all",), names), (("--on", "west"), names[::2])):
            head, *rows = many.done(*choice, *command).splitlines()
            assert head.split()[:2] == ["CONTEXT", "ID"]
            assert [row.split()[0] for row in rows] == chosen
            assert all(wanted["username"] in row for row in rows)
            records = many.json(*choice, *command)
            assert [(each["context"], each["username"]) for each in records] == [
                (name, wanted["username"]) for name in chosen
            ]


def test_a_label_of_one_context_shows_the_column_and_does_not_log_in_again(many: Shell, ports: Ports) -> None:
    many.has("", "first", url=f"https://localhost:{ports.forwarded[0]}", username="operator")
    labelled(many, "west", "first")
    many.environment["GATEWAY_PASSWORD_FILE"] = many.password_file("operator")
    ended = many.run("--on", "west", "subscribers", "summary")
    assert (ended.status, ended.out) == (ONE_FAILED, "")
    assert "gatewayctl: first: log in with: gatewayctl login\n" in ended.err
    assert many.done("--on", "west", "version").split()[0] == "CONTEXT"


def test_a_gateway_without_a_match_is_an_error_only_if_no_gateway_has_one(
    gateway: Gateway, many: Shell, ports: Ports
) -> None:
    (wanted,) = with_a_name(many.api, 1)
    mac, unknown = wanted["mac_address"], "02:ff:ff:ff:ff:ff"
    with gateway.replaced(without_sessions) as url:
        knows(many, first=ports.forwarded[0])
        for name in ("second", "third"):
            many.has("", name, url=url)
        for command in (("find",), ("history", "--mac"), ("show",)):
            ended = many.run("--all", "subscribers", *command, mac)
            assert (ended.status, ended.err) == (0, "")
            assert [line.split()[0] for line in ended.out.splitlines()[1:]] == ["first"]
            ended = many.run("--all", "subscribers", *command, unknown)
            assert (ended.status, ended.out) == (NOTHING_FOUND, "")
            # Once, not for each gateway.
            assert re.fullmatch("gatewayctl: no session .*\n", ended.err)
        command = ("--all", "subscribers", "find", unknown)
        # A program gets an empty list, and chosen columns are no error.
        assert many.run(*command, "-o", "json").out == "[]\n"
        assert many.run(*command, "--columns", "id").status == NOTHING_FOUND
        many.has("", "away", url=NOBODY_ANSWERS)
        ended = many.run("--all", "subscribers", "find", "nobody has this")
    assert ended.status == ONE_FAILED
    assert "gatewayctl: no session matches 'nobody has this'\n" in ended.err


def test_lines_about_the_past_name_the_gateway(gateway: Gateway, many: Shell) -> None:
    past = {"username": "7", "mac_address": "02:00:00:00:00:07", "access_interface": "trunk0.7"}
    past |= {"id": 1, "ip_address": None, "started_at": 1772331000, "ended_at": 1772331180, "reason": "x"}
    session = {**past, "type": "PPPoE", "username": "eve", "ipv6_address": None, "interface": "ppp0"}
    session |= {"rate_down": 1000, "rate_up": 1000, "state": "up"}
    found: list[dict[str, Any]] = []

    def reply(method: str, path: str) -> Reply:
        sessions = [past] if "/history" in path else found
        return 200, {"status": "ok", "data": {"sessions": sessions, "failures": [], "next_cursor": None}}

    with gateway.replaced(reply) as url:
        many.has("", "first", url=url)
        ended = many.run("--all", "subscribers", "find", "7")
        assert ended.err.splitlines()[0] == "gatewayctl: no session matches '7'"
        assert ended.err.splitlines()[1].startswith("gatewayctl: first: last seen 2026-03-01 ")
        found.append(session)
        ended = many.run("--all", "subscribers", "find", "7")
    assert ended.status == 0
    assert ended.err.startswith("gatewayctl: first: 7 is also a username: session 1, 7, ")


# Deadlines


def test_a_gateway_that_hangs_is_named_and_delays_neither_the_others_nor_the_exit(
    many: Shell, ports: Ports
) -> None:
    good = dict(zip(("first", "second"), ports.forwarded, strict=False))
    knows(many, **good, silent=ports.silent, slow=ports.slow)
    many.has("", "refusing", url=NOBODY_ANSWERS)
    many.has("", "unknown", url=UNKNOWN_HOST)
    began = time.monotonic()
    ended = many.run_process("--all", "--deadline", "4", "-o", "json", "subscribers", "summary")
    took = time.monotonic() - began
    assert [each["context"] for each in json.loads(ended.out)] == ["first", "second"]
    for name in ("silent", "slow"):
        url = f"https://localhost:{getattr(ports, name)}"
        late = f"gatewayctl: {name}: no complete response from a gateway at {url} within 4 s\n"
        assert late in ended.err
    assert f"gatewayctl: refusing: no response from a gateway at {NOBODY_ANSWERS}" in ended.err
    assert "gatewayctl: unknown: no " in ended.err
    assert ended.status == 10 + 4
    # The response of the slow gateway takes a minute and more, and a request to a silent gateway a minute.
    assert took < 30


def test_the_deadline_is_for_all_requests_of_a_gateway_together(gateway: Gateway, many: Shell) -> None:
    def reply(method: str, path: str) -> Reply:
        time.sleep(0.7)
        return 200, {"status": "ok", "data": {"sessions": [], "next_cursor": "more"}}

    with gateway.replaced(reply) as url:
        many.has("", "endless", url=url)
        ended = many.run_process("--all", "--deadline", "2", "subscribers", "list")
    assert ended.status == ONE_FAILED
    assert "gatewayctl: endless: no complete response from a gateway at " in ended.err


def test_all_deadlines_begin_at_once(many: Shell, ports: Ports) -> None:
    def measure(count: int) -> float:
        many.contexts.unlink(missing_ok=True)
        knows(many, **{f"silent{number}": ports.silent for number in range(count)})
        began = time.monotonic()
        ended = many.run_process("--all", "--deadline", "4", "version")
        assert ended.status == 10 + count
        return time.monotonic() - began

    assert measure(40) < 2 * measure(1)


def test_ctrl_c_ends_the_wait_for_a_silent_gateway(many: Shell, ports: Ports) -> None:
    knows(many, silent=ports.silent)
    with many.started("--all", "--deadline", "600", "version") as running:
        time.sleep(1)
        running.send(signal.SIGINT)
        assert running.wait() == INTERRUPTED


def test_the_most_traffic_of_many_is_shown_beside_the_name_of_one_that_is_away(
    gateway: Gateway, many: Shell, ports: Ports
) -> None:
    knows(many, first=ports.forwarded[0])
    many.has("", "away", url=NOBODY_ANSWERS)
    terminal = many.at_terminal("--all", "subscribers", "top", "--limit", "2", columns=150, lines=24)
    terminal.expect("first")
    terminal.expect("away: no response from a gateway")
    terminal.type("\x03")
    assert terminal.end() == 0
    many.done("contexts", "remove", "first")
    terminal = many.at_terminal("--all", "subscribers", "top", columns=150, lines=24)
    assert terminal.end() == ONE_FAILED
    assert "gatewayctl: away: no response from a gateway" in terminal.shown
