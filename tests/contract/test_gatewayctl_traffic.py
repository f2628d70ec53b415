"""The traffic, with `gatewayctl`."""

import json
import re
from itertools import pairwise

import pytest

from tests.support.by_api import with_a_name
from tests.support.running_gateway import Gateway
from tests.support.shell import Shell
from tests.support.stack import wait_for

pytestmark = pytest.mark.slow

FAILED = 1


def test_the_sessions_with_the_most_traffic_are_listed(operator: Shell) -> None:
    found = operator.json("subscribers", "top", "--sort", "-up", "--limit", "5")
    assert len(found) == 5
    ups = [session["up_bps"] for session in found]
    assert ups == sorted(ups, reverse=True)
    assert len(operator.done("subscribers", "top").splitlines()) == 21


def pictures(shown: str) -> list[list[str]]:
    """The lines of each picture at a terminal, but of one that is not complete yet."""
    text = re.sub("\x1b\\[(K|[0-9]*m)", "", shown.replace("\r\n", "\n"))
    return [each.removeprefix("\x1b[H").splitlines() for each in text.split("\x1b[J")[:-1]]


def test_on_a_terminal_the_most_traffic_is_shown_anew_until_ctrl_c(operator: Shell) -> None:
    terminal = operator.at_terminal("subscribers", "top", columns=80, lines=24)
    while len(pictures(terminal.shown)) < 3:
        terminal.expect("\x1b[J")
        terminal.read()
    terminal.type("\x03")
    assert terminal.end() == 0
    for picture in pictures(terminal.shown)[:3]:
        assert len(picture) < 24
        assert picture[0].endswith("every 2 s; Ctrl-C ends")
        assert picture[1].split()[:2] == ["ID", "USERNAME"]
    times = [picture[0] for picture in pictures(terminal.shown)]
    assert len(set(times)) > 1


def test_what_has_no_room_on_a_terminal_is_counted(operator: Shell) -> None:
    terminal = operator.at_terminal("subscribers", "top", "--limit", "50", columns=150, lines=12)
    terminal.expect("\x1b[J")
    terminal.type("\x03")
    assert terminal.end() == 0
    picture = pictures(terminal.shown)[0]
    assert len(picture) == 11
    assert picture[-1] == "42 more lines have no room"


def test_a_gateway_that_goes_away_is_asked_again(gateway: Gateway, operator: Shell) -> None:
    terminal = operator.at_terminal("subscribers", "top", "--limit", "2", columns=80, lines=24)
    terminal.expect("\x1b[J")
    with gateway.without_core():
        terminal.expect("Core daemon unreachable")
    shown = len(terminal.shown)
    while "USERNAME" not in terminal.shown[shown:]:
        terminal.read()
    terminal.type("\x03")
    assert terminal.end() == 0


def test_a_gateway_that_never_replies_ends_it(shell: Shell) -> None:
    shell.environment["GATEWAY_URL"] = "https://localhost:1"
    assert shell.at_terminal("subscribers", "top", columns=80, lines=24).end() == 3


def test_a_terminal_without_a_cursor_shows_the_most_traffic_once(operator: Shell) -> None:
    operator.environment["TERM"] = "dumb"
    terminal = operator.at_terminal("subscribers", "top", "--limit", "2", columns=150, lines=24)
    assert terminal.end() == 0
    assert len(terminal.shown.splitlines()) == 3


def test_the_traffic_of_a_session_is_watched_until_its_end(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    with admin.started("-o", "json", "subscribers", "watch", chosen["username"]) as running:
        running.wait_for("down_bps", 2)
        assert admin.api.send("DELETE", f"/subscribers/{chosen['id']}").status_code == 200
        assert running.wait() == 0
    assert running.err == f"gatewayctl: session {chosen['id']} has ended\n"
    samples = [json.loads(line) for line in running.out.splitlines()]
    assert all(after["at"] >= before["at"] for before, after in pairwise(samples))


def test_a_session_is_watched_again_after_a_core_that_hangs(gateway: Gateway, operator: Shell) -> None:
    (chosen,) = with_a_name(operator.api, 1)
    with operator.started("subscribers", "watch", str(chosen["id"])) as running:
        running.wait_for("packets/s", 2)
        with gateway.without_core():
            running.wait_for("Core daemon unreachable")
        running.wait_for("packets/s", running.out.count("packets/s") + 2)


def test_a_session_that_does_not_exist_cannot_be_watched(operator: Shell) -> None:
    ended = operator.run("subscribers", "watch", "999999999")
    said = "no session of 999999999; gatewayctl subscribers find searches for parts"
    assert ended == (FAILED, "", f"gatewayctl: {said}\n")


def test_the_traffic_of_all_trunks_over_time_is_listed(operator: Shell) -> None:
    wait_for("a sample", lambda: operator.api.get("/interfaces/traffic")["samples"])
    first, *_ = operator.json("traffic", "--since", "1771000000", "--step", "86400")
    assert set(first) == {"at", "down_bps", "up_bps"}
    assert operator.done("traffic").splitlines()[0].split() == ["TIME", "DOWN", "UP"]
