"""accel-ppp as a source of sessions, against a process that speaks like it and can lie."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Protocol

import pytest

from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.gateways.linux.daemons.accel_ppp import AccelPppReload
from gateway_api.core.gateways.linux.daemons.daemon import PlacedFiles
from gateway_api.core.gateways.linux.sources.accel_cli import CommandLine
from gateway_api.core.gateways.linux.sources.accel_ppp import AccelPpp
from gateway_api.core.gateways.linux.sources.source import SourceRefused, SourceSession, SourceUnavailable
from gateway_api.wire.core.sessions import SessionType
from tests.support.accel import VERSION, Peer
from tests.support.clocks import StillClock
from tests.support.documents import valid_document
from tests.support.running_accel import Accel, running_accel
from tests.support.stack import wait_for

ALICE = Peer("78fa5e68dbcd44c8", ip6="2001:db8:1::2/64", rate="20000/5000", uptime=60)
BOB = Peer(
    "78fa5e68dbcd44c9", username="we|ird\r\n\xff", ifname="ppp1", inbound="trunk0.300", ip="100.64.0.11"
)
CAROL = Peer("78fa5e68dbcd44ca", ifname="trunk0.50.7", inbound="trunk0.50.7", type="ipoe", ip="100.64.9.10")

#: Seconds, where a deadline must pass.
SHORT = 0.3


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


class Makes(Protocol):
    def __call__(self, command_line: CommandLine) -> AccelPpp: ...


@pytest.fixture
def make(clock: StillClock, ipoe: Path) -> Iterator[Makes]:
    """Makes a source, which ends with the test."""
    with ExitStack() as ends:

        def made(command_line: CommandLine) -> AccelPpp:
            source = AccelPpp("accel-ppp", command_line, ipoe, clock)
            return ends.enter_context(closing(source))

        yield made


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def source(accel: Accel, make: Makes) -> AccelPpp:
    return make(accel.command_line())


def keys(source: AccelPpp) -> set[str]:
    return {session.key for session in source.sessions()}


# Sweeps


def test_user_names_of_any_bytes_are_listed(accel: Accel, source: AccelPpp) -> None:
    accel.up(ALICE, BOB, CAROL)
    assert [session.username for session in source.sessions()] == ["alice", "we|ird\r\n\ufffd", "alice"]


def test_a_daemon_without_sessions_has_none(source: AccelPpp) -> None:
    assert source.sessions() == []


def test_sessions_come_and_go(accel: Accel, source: AccelPpp) -> None:
    accel.up(ALICE)
    assert keys(source) == {ALICE.sid}
    accel.up(BOB)
    accel.down(ALICE.sid)
    assert keys(source) == {BOB.sid}


def test_a_session_that_stays_is_the_same_object(accel: Accel, source: AccelPpp, clock: StillClock) -> None:
    accel.up(ALICE)
    (first,) = source.sessions()
    # As if uptime and clock had counted a second at different moments.
    clock.now += 1
    (second,) = source.sessions()
    assert second is first


def test_a_session_that_changes_keeps_its_start(accel: Accel, source: AccelPpp, clock: StillClock) -> None:
    accel.up(ALICE)
    (first,) = source.sessions()
    clock.now += 1
    accel.up(Peer(ALICE.sid, ip="100.64.0.99", uptime=60))
    (second,) = source.sessions()
    assert (second.ip_address, second.started_at) == ("100.64.0.99", first.started_at)


def test_a_start_follows_a_clock_that_is_set(accel: Accel, source: AccelPpp, clock: StillClock) -> None:
    accel.up(ALICE)
    (first,) = source.sessions()
    clock.ahead = 86_400
    (second,) = source.sessions()
    assert second.started_at == pytest.approx(first.started_at + 86_400, abs=2)


def test_rates_are_those_of_the_shaper(accel: Accel, source: AccelPpp) -> None:
    accel.up(ALICE, BOB)
    rates = [(session.rate_down, session.rate_up) for session in source.sessions()]
    assert rates == [(20_000_000, 5_000_000), (None, None)]


def test_without_the_shaper_there_are_no_rates(accel: Accel, source: AccelPpp) -> None:
    accel.faults(shaper=False)
    accel.up(ALICE)
    (session,) = source.sessions()
    assert (session.rate_down, session.rate_up) == (None, None)


# A daemon that does not reply


def test_a_dead_daemon_is_unavailable_and_back_after_a_restart(accel: Accel, source: AccelPpp) -> None:
    accel.up(ALICE)
    assert keys(source) == {ALICE.sid}
    accel.kill()
    with pytest.raises(SourceUnavailable, match="refused"):
        source.sessions()
    accel.start()
    accel.up(BOB)
    assert keys(source) == {BOB.sid}


def test_a_wrong_password_is_unavailable(accel: Accel, make: Makes) -> None:
    accel.faults(password="right")
    with pytest.raises(SourceUnavailable, match="password"):
        make(accel.command_line(password="wrong")).sessions()


def test_the_right_password_opens_the_command_line(accel: Accel, make: Makes) -> None:
    accel.faults(password="right")
    accel.up(ALICE)
    assert keys(make(accel.command_line(password="right"))) == {ALICE.sid}


def test_an_accel_ppp_that_has_no_password_yet_takes_commands(accel: Accel, make: Makes) -> None:
    accel.up(ALICE)
    assert keys(make(accel.command_line(password="right"))) == {ALICE.sid}
    assert accel.command_line(password="right").run("show nothing") == b"command unknown\r\n"


def test_a_table_cut_anywhere_is_unavailable(accel: Accel, source: AccelPpp) -> None:
    accel.up(ALICE)
    source.sessions()
    (show,) = (command for command in accel.commands() if command.startswith("show sessions"))
    whole = len(f"{VERSION}\r\n" * 2) + len(accel.command_line().run(show))
    for length in (*range(0, whole, 41), whole - 1):
        accel.faults(cli=length)
        with pytest.raises(SourceUnavailable):
            source.sessions()


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_a_command_ends_at_its_deadline(accel: Accel, make: Makes, fault: str) -> None:
    accel.faults(cli=fault)
    with pytest.raises(SourceUnavailable, match="no reply within"):
        make(accel.command_line(timeout=SHORT)).sessions()


def test_commands_that_wait_for_one_that_hangs_end_at_their_deadline(accel: Accel) -> None:
    accel.faults(cli="hang")
    command_line = accel.command_line(timeout=SHORT)
    with ThreadPoolExecutor(4) as pool:
        outcomes = [pool.submit(command_line.run, "show stat").exception() for _ in range(4)]
    assert all(isinstance(outcome, SourceUnavailable) for outcome in outcomes)
    accel.faults(cli=None)

    def reply() -> bytes:
        # A busy machine may need longer than that.
        with suppress(SourceUnavailable):
            return command_line.run("show nothing")
        return b""

    assert wait_for("a reply", reply) == b"command unknown\r\n"


# Actions


def only(source: AccelPpp) -> SourceSession:
    (session,) = source.sessions()
    return session


def test_a_session_that_is_terminated_is_gone(accel: Accel, source: AccelPpp) -> None:
    accel.up(ALICE)
    session = only(source)
    source.terminate(session)
    wait_for("the session to end", lambda: not source.sessions())
    assert accel.commands().count(f"terminate sid {ALICE.sid} soft") == 1


def test_a_session_that_is_gone_can_be_terminated(accel: Accel, source: AccelPpp) -> None:
    accel.up(ALICE)
    session = only(source)
    accel.down(ALICE.sid)
    source.terminate(session)


def test_a_daemon_that_ignores_a_request_still_lists_the_session(accel: Accel, source: AccelPpp) -> None:
    accel.up(ALICE)
    accel.faults(deaf=True)
    source.terminate(only(source))
    assert keys(source) == {ALICE.sid}


def test_a_second_request_within_a_minute_is_a_hard_one(
    accel: Accel, source: AccelPpp, clock: StillClock
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
    accel: Accel, source: AccelPpp, clock: StillClock
) -> None:
    accel.up(ALICE)
    assert source.ends([ALICE.sid])[ALICE.sid].reason == "unknown"
    source.terminate(only(source))
    assert source.ends([ALICE.sid])[ALICE.sid].reason == "admin_disconnect"
    assert source.ends([BOB.sid])[BOB.sid].reason == "unknown"
    clock.now += 61
    assert source.ends([ALICE.sid])[ALICE.sid].reason == "unknown"


def test_a_request_that_was_not_received_is_no_reason(accel: Accel, source: AccelPpp) -> None:
    accel.up(ALICE)
    session = only(source)
    accel.kill()
    with pytest.raises(SourceUnavailable):
        source.terminate(session)
    assert source.ends([ALICE.sid])[ALICE.sid].reason == "unknown"
    accel.start()


def test_a_vlan_is_served_and_released(accel: Accel, source: AccelPpp) -> None:
    source.serve(["trunk0.300"], SessionType.PPPOE)
    source.serve(["trunk0.300"], SessionType.PPPOE)
    assert accel.interfaces() == ["trunk0.300"]
    source.release("trunk0.300")
    source.release("trunk0.300")
    assert accel.interfaces() == []


def test_a_session_ends_by_the_release_of_its_vlan(accel: Accel, source: AccelPpp) -> None:
    accel.up(ALICE, BOB)
    source.sessions()
    source.release(ALICE.inbound)
    assert source.ends([ALICE.sid])[ALICE.sid].reason == "admin_disconnect"
    assert source.ends([BOB.sid])[BOB.sid].reason == "unknown"


def test_an_interface_that_does_not_exist_is_refused(accel: Accel, source: AccelPpp) -> None:
    accel.faults(links=[])
    with pytest.raises(SourceRefused, match="No such device"):
        source.serve(["trunk0.300"], SessionType.PPPOE)


@pytest.mark.parametrize("name", ["trunk0.300 x", "trunk0.300\nexit", "re:.*", "trunk0,net=x"])
def test_only_the_name_of_an_interface_reaches_the_command_line(
    accel: Accel, source: AccelPpp, name: str
) -> None:
    for action in (lambda: source.serve([name], SessionType.PPPOE), lambda: source.release(name)):
        with pytest.raises(ValueError, match="not the name of an interface"):
            action()
    assert accel.commands() == []


def test_dhcp_on_many_vlans_takes_few_reloads(accel: Accel, source: AccelPpp, ipoe: Path) -> None:
    accel.faults(ipoe=str(ipoe))
    names = sorted(f"trunk0.{vlan}" for vlan in range(500))
    for name in names:
        source.serve([name], SessionType.DHCP)
    wait_for("all to be served", lambda: names in accel.reloads())
    assert len(accel.reloads()) < 50


@pytest.mark.parametrize("reply", ["reload is already in progress\r\n", "failed\r\n"])
def test_a_reload_that_failed_is_repeated(accel: Accel, source: AccelPpp, ipoe: Path, reply: str) -> None:
    accel.faults(ipoe=str(ipoe), reload=reply)
    source.serve(["trunk0.300"], SessionType.DHCP)
    wait_for("a reload", accel.reloads)
    accel.faults(reload="")
    failed = len(accel.reloads())
    wait_for("another reload", lambda: len(accel.reloads()) > failed)


def test_a_vlan_that_is_made_again_is_first_let_go(accel: Accel, source: AccelPpp, ipoe: Path) -> None:
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


def test_a_vlan_that_is_released_is_let_go(accel: Accel, source: AccelPpp, ipoe: Path) -> None:
    accel.faults(ipoe=str(ipoe))
    source.serve(["trunk0.300"], SessionType.DHCP)
    wait_for("a reload", accel.reloads)
    source.release("trunk0.300")
    wait_for("another", lambda: accel.reloads()[1:] == [[]])


def test_a_vlan_without_dhcp_is_released_without_a_reload(accel: Accel, source: AccelPpp, ipoe: Path) -> None:
    accel.faults(ipoe=str(ipoe))
    source.release("trunk0.300")
    source.serve(["trunk0.301"], SessionType.DHCP)
    assert wait_for("a reload", accel.reloads) == [["trunk0.301"]]


def test_dhcp_goes_on_after_a_restart_of_the_core(accel: Accel, make: Makes, ipoe: Path) -> None:
    ipoe.write_text("interface=lo\ninterface=nosuch0\n")
    accel.faults(ipoe=str(ipoe))
    source = make(accel.command_line())
    source.serve(["trunk0.300"], SessionType.DHCP)
    # What is gone was removed by somebody else.
    assert wait_for("a reload", accel.reloads) == [["lo", "trunk0.300"]]


def test_a_file_that_cannot_be_written_is_refused(accel: Accel, make: Makes, ipoe: Path) -> None:
    ipoe.mkdir()
    with pytest.raises(SourceRefused, match=r"cannot read .*ipoe\.conf"):
        make(accel.command_line())


# Ten thousand sessions


def test_a_sweep_of_10_000_sessions_takes_less_than_a_second_of_cpu(accel: Accel, source: AccelPpp) -> None:
    accel.up(*(
        Peer(
            f"{place:016x}", username=f"subscriber{place:06}@lab.example", ifname=f"ppp{place}",
            inbound=f"trunk0.{place % 4094}", ip=f"100.64.{place // 256}.{place % 256}",
            ip6=f"2001:db8:{place:x}::2/64", delegated=f"2001:db8:{place:x}:100::/56", rate="20000/5000",
        )
        for place in range(10_000)
    ))  # fmt: skip
    for _ in range(2):
        before = time.thread_time()
        assert len(source.sessions()) == 10_000
        assert time.thread_time() - before < 1


def test_a_daemon_that_runs_by_the_file_of_the_gateway_is_only_commanded(
    tmp_path: Path, clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    # The file loads no other module that listens.
    with running_accel() as accel:
        daemon = AccelPppReload(PlacedFiles(tmp_path), accel.command_line())
        configuration = RunningConfiguration.of(valid_document()).sections
        with closing(daemon.source(configuration, clock)) as source:
            assert source.sessions() == []
    assert caplog.text == ""
