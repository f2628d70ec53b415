"""What the Linux gateway finds of its dependencies: RADIUS, FRR, the clock, and its sources."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway_contract.configuration import Configuration
from gateway_contract.core.health import Dependency, DependencyState, find_worst_state
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.accel_command_line import (
    AccelPppRadius,
    RadiusServer,
    UnreadableReply,
    parse_radius_servers,
)
from gateway_core.gateways.linux.daemons.frr import BgpReader, FrrFolders
from gateway_core.gateways.linux.daemons.pppd import PppdRadius
from gateway_core.gateways.linux.daemons.source import SourceUnavailable
from gateway_core.gateways.linux.health import DependencyWatch, check_clock, check_frr, check_radius
from tests.support.accel import stat
from tests.support.core_clock import StillClock
from tests.support.documents import valid_document
from tests.support.sources import ListedSource, Lives

#: As accel-ppp 1.14 printed it, after sections without RADIUS.
CAPTURE = b"""\
uptime: 0.00:00:06\r
cpu: 0%\r
mem(rss/virt): 7216/248652 kB\r
pppoe:\r
  starting: 0\r
  active: 2\r
  recv PADR(dup): 2(0)\r
radius(1, 127.0.0.1):\r
  state: active\r
  fail count: 0\r
  request count: 0\r
  queue length: 0\r
  auth sent: 3\r
  auth lost(total/5m/1m): 0/0/0\r
  auth avg query time(5m/1m): 0/0 ms\r
  acct sent: 3\r
  acct lost(total/5m/1m): 0/0/0\r
  acct avg query time(5m/1m): 1/1 ms\r
  interim sent: 1\r
  interim lost(total/5m/1m): 0/0/0\r
  interim avg query time(5m/1m): 0/0 ms\r
"""


def configured(**sections: object) -> Configuration:
    document = {**valid_document(), **sections}
    return RunningConfiguration.of(document).sections


RADIUS = configured(radius={"server": "192.0.2.1", "secret": "between-us"}).radius
BGP = configured(
    bgp={
        "as_number": 64512,
        "router_id": "10.255.0.1",
        "neighbors": [{"address": f"10.255.0.{host}", "remote_as": 64513} for host in (2, 6)],
    }
).bgp


class Statistics:
    """accel-ppp's `show stat`, as a test sets it."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.reply: bytes | Exception = b""
        self.client = AccelPppRadius(self._ask, self.clock.wall)

    def _ask(self) -> bytes:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


@pytest.fixture
def statistics() -> Statistics:
    return Statistics()


# RADIUS


def test_the_requests_of_all_kinds_are_added_up_for_each_server() -> None:
    other = CAPTURE[CAPTURE.index(b"radius") :].replace(b"state: active", b"state: failed")
    other = other.replace(b"0/0/0", b"5/2/1", 2).replace(b"request count: 0", b"request count: 1")
    assert parse_radius_servers(CAPTURE + other) == [
        RadiusServer(False, 7, 0),
        RadiusServer(True, 0, 4),
    ]
    assert parse_radius_servers(CAPTURE[: CAPTURE.index(b"radius")]) == []


@pytest.mark.parametrize(("text", "other"), [(b"uptime", b"?"), (b"3\r", b"x\r"), (b"/0\r", b"\r")])
def test_what_is_no_reply_is_unreadable(text: bytes, other: bytes) -> None:
    with pytest.raises(UnreadableReply):
        parse_radius_servers(CAPTURE.replace(text, other))


@pytest.mark.parametrize(
    ("looks", "state", "message"),
    [
        # Seconds since the look before, then requests: sent, timed out, and of these in the last 5 minutes.
        ([(0, 7, 0, 0)], "ok", "No request timed out .* the core has seen no response since it started."),
        ([(0, 7, 0, 0), (60, 8, 0, 0)], "ok", "No .* and the last response came at 2023-11-14T22:14:20Z."),
        ([(0, 7, 0, 0), (0, 9, 1, 1)], "degraded", "1 request timed out .* came at 2023-11-14T22:13:20Z."),
        ([(0, 7, 0, 0), (0, 8, 0, 0), (300, 10, 2, 2)], "degraded", "2 requests timed out .*"),
        ([(0, 7, 0, 0), (0, 8, 0, 0), (301, 12, 4, 4)], "failed", "The server does not respond: .*"),
        ([(0, 0, 0, 0)], "unknown", ".*"),
        ([(0, 0, 0, 0), (0, 1, 1, 1)], "failed", ".*"),
        # After a restart of accel-ppp.
        ([(0, 7, 0, 0), (60, 1, 0, 0)], "ok", ".* the core has seen no response since it started."),
    ],
)  # fmt: skip
def test_radius_is_as_well_as_its_responses(
    statistics: Statistics, looks: list[tuple[int, int, int, int]], state: str, message: str
) -> None:
    for seconds, sent, lost, lately in looks:
        statistics.clock.now += seconds
        statistics.reply = stat((False, sent, lost, lately))
        found = check_radius(RADIUS, statistics.client)
    assert (found.name, found.state) == ("radius", state)
    assert re.fullmatch(message, found.message)


@pytest.mark.parametrize(
    ("reply", "state", "message"),
    [
        (SourceUnavailable("cannot reach 127.0.0.1:2001"), "unknown", "accel-ppp does not reply"),
        (b"command unknown\r\n", "unknown", "accel-ppp says nothing readable"),
        (stat(None), "failed", "accel-ppp runs without its RADIUS module and has to be restarted"),
        (stat((True, 10, 2, 2)), "failed", "accel-ppp has given the server up:"),
    ],
)  # fmt: skip
def test_an_accel_ppp_without_radius_is_named_without_its_address(
    statistics: Statistics, reply: bytes | Exception, state: str, message: str
) -> None:
    statistics.reply = reply
    found = check_radius(RADIUS, statistics.client)
    assert (found.state, "127.0.0.1" in found.message) == (state, False)
    assert found.message.startswith(message)


def test_radius_is_unused_without_a_server_and_unknown_behind_pppd() -> None:
    assert check_radius(configured().radius, Statistics().client).state == "unused"
    assert check_radius(RADIUS, None).state == "unused"
    assert check_radius(RADIUS, PppdRadius()).state == "unknown"


# FRR


@pytest.fixture
def vtysh(tmp_path: Path) -> Callable[[str], BgpReader]:
    """A vtysh that is this shell script. The one that hangs has little time."""

    def install(script: str) -> BgpReader:
        program = tmp_path / "vtysh"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        return BgpReader(FrrFolders(*[tmp_path] * 4), 0.5 if "sleep" in script else 60)

    return install


def peers(one: str, other: str) -> str:
    """Prints a summary with two neighbours in these states."""
    peers = f'{{"10.255.0.2": {{"state": "{one}"}}, "10.255.0.6": {{"state": "{other}", "pfxRcd": 1}}}}'
    return f"""echo '{{"ipv4Unicast": {{"as": 64512, "peers": {peers}}}}}'"""


@pytest.mark.parametrize(
    ("script", "state", "message"),
    [
        (peers("Established", "Established"), "ok", "All BGP sessions are established: 2."),
        (peers("Established", "Active"), "degraded", "1 of 2 .* not established: 10.255.0.6."),
        (peers("Idle", "Active"), "failed", "2 of 2 .* not established: 10.255.0.2, 10.255.0.6."),
        ("exec sleep 60", "failed", "FRR gave no BGP summary: vtysh did not end within 0.5 s."),
        ("echo bgpd is not running; exit 1", "failed", ".*bgpd is not running.*"),
        ("""echo '{"ipv4Unicast": {"peers": [1]}}'""", "unknown", ".*"),
    ],
)
def test_frr_is_as_well_as_its_neighbours_and_failed_without_a_summary(
    vtysh: Callable[[str], BgpReader], script: str, state: str, message: str
) -> None:
    found = check_frr(BGP, vtysh(script))
    assert found.state == state
    assert re.fullmatch(message, found.message)


def test_frr_is_unused_without_neighbours_and_failed_without_vtysh_or_with_another_s_bgp(
    tmp_path: Path, vtysh: Callable[[str], BgpReader]
) -> None:
    missing = BgpReader(FrrFolders(*[tmp_path] * 4), 60)
    assert (check_frr(None, missing).state, check_frr(BGP, missing).state) == ("unused", "failed")
    lines = [f"neighbor 10.255.0.{number} remote-as 65002" for number in range(7)]
    found = check_frr(BGP, vtysh("exit 1"), lines)
    assert found.state == "failed"
    assert found.message == (
        f"Routing is not managed: FRR has a BGP instance that is not the gateway's: {'; '.join(lines[:5])} "
        "and 2 more. `gateway-core setup --frr replace`, as root, gives BGP to the gateway."
    )


# The clock


@pytest.mark.parametrize(
    ("command", "state"),
    [
        ("echo yes", "ok"),
        ("echo no", "degraded"),
        ("echo yes; exit 1", "unknown"),
        ("no-such-timedatectl", "unknown"),
    ],
)
def test_the_clock_is_as_timedatectl_says(command: str, state: str) -> None:
    found = check_clock([command] if command.startswith("no") else ["sh", "-c", command])
    assert (found.state, "/" in found.message) == (state, False)


# All of them


def test_a_source_is_unknown_at_first_failed_while_silent_and_degraded_with_a_concern(tmp_path: Path) -> None:
    source = ListedSource()
    lives = Lives(tmp_path / "state", source)
    watch = DependencyWatch(
        configured(bgp=None), lives.tracker, None, BgpReader(FrrFolders(), 1), tuple, check_clock
    )

    def found() -> tuple[str, str]:
        first = watch.list_dependencies()[0]
        assert first.name == "accel-ppp"
        return first.state, first.message

    assert found() == ("unknown", "accel-ppp has not replied yet: the core has just started.")
    lives.poll()
    assert found() == ("ok", "accel-ppp lists its sessions.")
    source.fails = True
    lives.poll()
    since = "2023-11-14T22:13:20Z"
    assert found() == ("failed", f"accel-ppp has not replied since {since}, and its sessions are stale.")
    source.fails, source.worry = False, "2 of 3 are slow"
    lives.poll()
    assert found() == ("degraded", "accel-ppp lists its sessions: 2 of 3 are slow.")
    lives.kill()


def test_a_look_asks_all_and_a_commit_counts_at_the_next(
    tmp_path: Path, vtysh: Callable[[str], BgpReader]
) -> None:
    lives = Lives(tmp_path / "state", ListedSource())
    daemon = vtysh("exit 1")
    well = Dependency("clock", DependencyState.OK, "It is well.")
    watch = DependencyWatch(configured(bgp=None), lives.tracker, PppdRadius(), daemon, tuple, lambda: well)
    assert [one.state for one in watch.list_dependencies()[1:]] == ["unknown"] * 3
    watch.check()
    assert [one.state for one in watch.list_dependencies()[1:]] == ["unused", "unused", "ok"]
    watch.configure(configured(radius={"server": "192.0.2.1", "secret": "between-us"}))
    watch.check()
    assert watch.list_dependencies()[1].state == "unknown"
    lives.kill()


def test_the_whole_is_as_bad_as_the_worst_and_what_is_unused_does_not_count() -> None:
    def whole(*states: DependencyState) -> str:
        return find_worst_state([Dependency("one", state, "") for state in states])

    unused, ok, unknown, degraded, _ = DependencyState
    assert whole(ok, unused, ok) == "ok"
    assert whole(unknown, degraded, ok) == "degraded"
    assert [state.severity for state in DependencyState] == [0, 0, 1, 2, 3]
