"""accel-ppp as a source of sessions, against a process that speaks like it and can lie."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeAlias

import pytest

from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.daemons.accel_command_line import CommandLine
from gateway_core.gateways.linux.daemons.accel_ppp import AccelPppSource
from gateway_core.gateways.linux.daemons.source import SourceRefused, SourceSession, SourceUnavailable
from tests.support.accel import VERSION, Peer
from tests.support.core_clock import StillClock
from tests.support.running_accel import Accel, running_accel
from tests.support.stack import wait_for

ALICE = Peer("78fa5e68dbcd44c8", ip6="2001:db8:1::2/64", rate="20000/5000", uptime=60)
BOB = Peer(
    "78fa5e68dbcd44c9", username="we|ird\r\n\xff", ifname="ppp1", inbound="trunk0.300", ip="100.64.0.11"
)
CAROL = Peer("78fa5e68dbcd44ca", ifname="trunk0.50.7", inbound="trunk0.50.7", type="ipoe", ip="100.64.9.10")

#: Seconds, where a deadline must pass.
SHORT = 0.3
#: Makes a source, which ends with the test.
Makes: TypeAlias = Callable[[CommandLine], AccelPppSource]


@pytest.fixture(scope="module")
def process() -> Iterator[Accel]:
    with running_accel() as started:
        yield started


@pytest.fixture
def accel(process: Accel) -> Accel:
    process.reset()
    process.faults(still=True)
    return process


@pytest.fixture
def ipoe(tmp_path: Path) -> Path:
    """The file that `[ipoe]` includes."""
    return tmp_path / "ipoe.conf"


@pytest.fixture
def make(clock: StillClock, ipoe: Path) -> Iterator[Makes]:
    with ExitStack() as ends:

        def made(command_line: CommandLine) -> AccelPppSource:
            source = AccelPppSource(command_line, ipoe, clock)
            return ends.enter_context(closing(source))

        yield made


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def source(accel: Accel, make: Makes) -> AccelPppSource:
    return make(accel.command_line())


def keys(source: AccelPppSource) -> set[str]:
    return {session.key for session in source.list_sessions()}


# Sweeps


def test_sessions_come_and_go_with_user_names_of_any_bytes(accel: Accel, source: AccelPppSource) -> None:
    assert source.list_sessions() == []
    accel.up(ALICE)
    assert keys(source) == {ALICE.sid}
    accel.up(BOB, CAROL)
    assert [session.username for session in source.list_sessions()] == ["alice", "we|ird\r\n\ufffd", "alice"]
    accel.down(ALICE.sid)
    assert keys(source) == {BOB.sid, CAROL.sid}


def test_a_session_that_stays_is_the_same_object_and_keeps_its_start(
    accel: Accel, source: AccelPppSource, clock: StillClock
) -> None:
    accel.up(ALICE)
    (first,) = source.list_sessions()
    # As if uptime and clock had counted a second at different moments.
    clock.now += 1
    (second,) = source.list_sessions()
    assert second is first
    accel.up(Peer(ALICE.sid, ip="100.64.0.99", uptime=60))
    (third,) = source.list_sessions()
    assert (third.ip_address, third.started_at) == ("100.64.0.99", first.started_at)
    # A start follows a clock that is set.
    clock.ahead = 86_400
    (fourth,) = source.list_sessions()
    assert fourth.started_at == pytest.approx(first.started_at + 86_400, abs=2)


def test_rates_are_those_of_the_shaper_if_there_is_one(
    accel: Accel, source: AccelPppSource, make: Makes
) -> None:
    accel.up(ALICE, BOB)
    rates = [(session.rate_down, session.rate_up) for session in source.list_sessions()]
    assert rates == [(20_000_000, 5_000_000), (None, None)]
    accel.faults(shaper=False)
    rates = [(session.rate_down, session.rate_up) for session in make(accel.command_line()).list_sessions()]
    assert rates == [(None, None)] * 2


# A daemon that does not reply


def test_a_dead_daemon_is_unavailable_and_back_after_a_restart(accel: Accel, source: AccelPppSource) -> None:
    accel.up(ALICE)
    assert keys(source) == {ALICE.sid}
    accel.kill()
    with pytest.raises(SourceUnavailable, match="refused"):
        source.list_sessions()
    accel.start()
    accel.up(BOB)
    assert keys(source) == {BOB.sid}


def test_the_right_password_opens_the_command_line(accel: Accel, make: Makes) -> None:
    accel.up(ALICE)
    # An accel-ppp that has no password yet takes commands too.
    assert keys(make(accel.command_line(password="right"))) == {ALICE.sid}
    assert accel.command_line(password="right").run("show nothing") == b"command unknown\r\n"
    accel.faults(password="right")
    assert keys(make(accel.command_line(password="right"))) == {ALICE.sid}
    with pytest.raises(SourceUnavailable, match="password"):
        make(accel.command_line(password="wrong")).list_sessions()


def test_a_table_cut_anywhere_is_unavailable(accel: Accel, source: AccelPppSource) -> None:
    accel.up(ALICE)
    source.list_sessions()
    (show,) = (command for command in accel.commands() if command.startswith("show sessions"))
    whole = len(f"{VERSION}\r\n" * 2) + len(accel.command_line().run(show))
    for length in (*range(0, whole, 41), whole - 1):
        accel.faults(cli=length)
        with pytest.raises(SourceUnavailable):
            source.list_sessions()


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_a_command_and_those_that_wait_for_it_end_at_their_deadline(accel: Accel, fault: str) -> None:
    accel.faults(cli=fault)
    command_line = accel.command_line(timeout=SHORT)
    with ThreadPoolExecutor(4) as pool:
        outcomes = [pool.submit(command_line.run, "show stat").exception() for _ in range(4)]
    assert all("no reply within" in str(outcome) for outcome in outcomes)


# Actions


def only(source: AccelPppSource) -> SourceSession:
    (session,) = source.list_sessions()
    return session


def test_a_session_that_is_terminated_is_gone(accel: Accel, source: AccelPppSource) -> None:
    accel.up(ALICE)
    accel.faults(deaf=True)
    session = only(source)
    source.terminate(session)
    assert keys(source) == {ALICE.sid}
    accel.faults(deaf=False)
    source.terminate(session)
    wait_for("the session to end", lambda: not source.list_sessions())
    # One that is gone can be terminated.
    source.terminate(session)


def test_a_second_request_within_a_minute_is_a_hard_one(
    accel: Accel, source: AccelPppSource, clock: StillClock
) -> None:
    accel.up(ALICE)
    session = only(source)
    source.terminate(session)
    source.terminate(session)
    clock.now += 61
    source.terminate(session)
    requests = [command.split()[-1] for command in accel.commands() if command.startswith("terminate")]
    assert requests == ["soft", "hard", "soft"]


def test_the_reason_is_known_only_of_a_session_that_was_just_terminated(
    accel: Accel, source: AccelPppSource, clock: StillClock
) -> None:
    def reasons() -> tuple[str, str]:
        return source.read_ends([ALICE.sid])[ALICE.sid].reason, source.read_ends([BOB.sid])[BOB.sid].reason

    accel.up(ALICE, BOB)
    session, _ = source.list_sessions()
    accel.kill()
    # A request that was not received is no reason.
    with pytest.raises(SourceUnavailable):
        source.terminate(session)
    accel.start()
    accel.faults(still=True)
    accel.up(ALICE, BOB)
    assert reasons() == ("unknown", "unknown")
    source.terminate(session)
    assert reasons() == ("admin_disconnect", "unknown")
    clock.now += 61
    assert reasons() == ("unknown", "unknown")
    source.list_sessions()
    source.release(BOB.inbound)
    assert reasons()[1] == "admin_disconnect"


def test_a_vlan_is_served_and_released(accel: Accel, source: AccelPppSource) -> None:
    for _ in range(2):
        source.serve(["trunk0.300"], SessionType.PPPOE)
    assert accel.interfaces() == ["trunk0.300"]
    for _ in range(2):
        source.release("trunk0.300")
    assert accel.interfaces() == []
    accel.faults(links=[])
    with pytest.raises(SourceRefused, match="No such device"):
        source.serve(["trunk0.300"], SessionType.PPPOE)


def test_dhcp_on_many_vlans_takes_few_reloads(accel: Accel, source: AccelPppSource, ipoe: Path) -> None:
    accel.faults(ipoe=str(ipoe))
    names = sorted(f"trunk0.{vlan}" for vlan in range(500))
    for name in names:
        source.serve([name], SessionType.DHCP)
    wait_for("all to be served", lambda: names in accel.reloads())
    assert len(accel.reloads()) < 50


@pytest.mark.parametrize("reply", ["reload is already in progress\r\n", "failed\r\n"])
def test_a_reload_that_failed_is_repeated(
    accel: Accel, source: AccelPppSource, ipoe: Path, reply: str
) -> None:
    accel.faults(ipoe=str(ipoe), reload=reply)
    source.serve(["trunk0.300"], SessionType.DHCP)
    wait_for("a reload", accel.reloads)
    accel.faults(reload="")
    failed = len(accel.reloads())
    wait_for("another reload", lambda: len(accel.reloads()) > failed)


def test_a_vlan_that_is_made_again_is_first_let_go(accel: Accel, source: AccelPppSource, ipoe: Path) -> None:
    accel.faults(ipoe=str(ipoe))
    both = ["trunk0.300", "trunk0.301"]
    for name in both:
        source.serve([name], SessionType.DHCP)
    wait_for("both to be served", lambda: both in accel.reloads())
    before = len(accel.reloads())
    source.release("trunk0.300")
    source.serve(["trunk0.300"], SessionType.DHCP)
    wait_for("both to be served again", lambda: both in accel.reloads()[before:])
    assert ["trunk0.301"] in accel.reloads()[before:]


def test_a_vlan_that_is_released_is_let_go(accel: Accel, source: AccelPppSource, ipoe: Path) -> None:
    accel.faults(ipoe=str(ipoe))
    # Without DHCP, there is no reload.
    source.release("trunk0.301")
    source.serve(["trunk0.300"], SessionType.DHCP)
    assert wait_for("a reload", accel.reloads) == [["trunk0.300"]]
    source.release("trunk0.300")
    wait_for("another", lambda: accel.reloads()[1:] == [[]])


def test_dhcp_goes_on_after_a_restart_of_the_core(accel: Accel, make: Makes, ipoe: Path) -> None:
    ipoe.write_text("interface=lo\ninterface=nosuch0\n")
    accel.faults(ipoe=str(ipoe))
    source = make(accel.command_line())
    source.serve(["trunk0.300"], SessionType.DHCP)
    # What is gone was removed by somebody else.
    assert wait_for("a reload", accel.reloads) == [["lo", "trunk0.300"]]
    ipoe.unlink()
    ipoe.mkdir()
    with pytest.raises(SourceRefused, match=r"cannot read .*ipoe\.conf"):
        make(accel.command_line())
