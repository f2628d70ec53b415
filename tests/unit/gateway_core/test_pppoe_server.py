"""pppoe-server's sessions, from a made-up /proc and made-up records. What pppd shows was captured in
Debian 12, from pppd 2.4.9 and rp-pppoe 3.15."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway_contract.core.sessions import SessionType
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.pppd import (
    SIGNALLED,
    PppdRecord,
    PppoeAccess,
    UnreadableRecord,
    parse_access,
    parse_end,
    parse_record,
    parse_start,
)
from gateway_core.gateways.linux.daemons.pppoe_server import PppoeServerSource, PppoeSettings
from gateway_core.gateways.linux.daemons.source import (
    SourceEnd,
    SourceRefused,
    SourceSession,
    SourceTraffic,
    SourceUnavailable,
)
from gateway_core.gateways.linux.daemons.subscriber_addresses import (
    MAX_BLOCK_SIZE,
    SessionPrefixes,
    SharedRange,
)
from gateway_core.gateways.linux.daemons.systemd import name_instance
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock

STAT = (
    "{pid} (pppd) {state} 137 139 139 0 -1 4194560 436 1906 2 24 8 17 94 212 20 0 1 0 {start} 13471744 1307 "
    "18446744073709551615 94740954071040 94740954279805 140731952490832 0 0 0 0 4096 1468100351 1 0\n"
)
CMDLINE = (
    "pppd\0pty\0/usr/sbin/pppoe -n -I {interface} -e 1:56:4F:3a:f1:aa:f6 -S ''\0file\0/run/options\0"
    "100.64.0.1:100.64.100.2\0nodetach\0noaccomp\0nopcomp\0default-asyncmap\0mru\x001492\0mtu\x001492\0"
)
#: As packaging/pppoe/pppd makes it.
IN_KERNEL = CMDLINE.replace(
    "pty\0/usr/sbin/pppoe -n -I {interface} -e 1:56:4F:3a:f1:aa:f6 -S ''",
    "plugin\0rp-pppoe.so\0nic-{interface}\0rp_pppoe_sess\x001:56:4F:3a:f1:aa:f6",
)
MAC = "56:4f:3a:f1:aa:f6"
UP = {"EVENT": "ip-up", "IFNAME": "ppp0", "PEERNAME": "alice", "IPREMOTE": "100.64.100.2"}
UP6 = {"EVENT": "ipv6-up", "IFNAME": "ppp0", "PEERNAME": "alice", "LLREMOTE": "fe80::0c5a:1373:cee6:c43d"}
COUNTED = {"BYTES_SENT": "7575436", "BYTES_RCVD": "2018983"}
DOWN = {**UP, "EVENT": "ip-down", **COUNTED}

#: Of a pppd, in order, before the lines of its end.
BEGIN = [
    "pppd 2.4.9 started by root, uid 0",
    "Using interface ppp0",
    "Connect: ppp0 <--> /dev/pts/0",
    "local  IP address 100.64.0.1",
    "remote IP address 100.64.100.2",
]
GOODBYE = [
    "LCP terminated by peer (User request)",
    "Connect time 0.1 minutes.",
    "Sent 0 bytes, received 0 bytes.",
    "Connection terminated.",
    "Modem hangup",
    "Exit.",
]
STOPPED = ["Terminating on signal 15", "Connect time 0.1 minutes.", "Connection terminated.", "Exit."]
CUT = [
    "No response to 3 echo-requests",
    "Serial link appears to be disconnected.",
    "Connection terminated.",
    "Modem hangup",
    "Exit.",
]


def encoded(items: dict[str, str]) -> bytes:
    return "".join(f"{name}={value}\0" for name, value in items.items()).encode()


class Machine:
    """/proc, the folder of the records, and the log."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.records = folder / "proc", folder / "records"
        self.records.mkdir()
        self.runs(1, 0)
        self.log: dict[int, list[str]] = {}
        self.later: dict[int, list[str]] = {}
        self.clock = StillClock()
        self.prefixes: dict[str | None, IPv6Network] = {}
        self.asked: list[tuple[str, object]] = []

    def source(self) -> PppoeServerSource:
        return PppoeServerSource(
            self, self, self.records, self.clock, self.prefixes.get, self.proc, self.sleep
        )

    def sleep(self, seconds: float) -> None:
        """The journal catches up."""
        self.log |= self.later

    def runs(
        self, pid: int, start: int, interface: str = "trunk0.100", state: str = "S", cmdline: str = CMDLINE
    ) -> None:
        (self.proc / str(pid)).mkdir(parents=True, exist_ok=True)
        (self.proc / str(pid) / "stat").write_text(STAT.format(pid=pid, start=start, state=state))
        (self.proc / str(pid) / "cmdline").write_text(cmdline.format(interface=interface))

    def ends(self, pid: int) -> None:
        for file in (self.proc / str(pid)).iterdir():
            file.unlink()
        (self.proc / str(pid)).rmdir()

    def recorded(self, name: str, items: dict[str, str], at: int = NOW) -> None:
        (self.records / name).write_bytes(encoded(items))
        os.utime(self.records / name, (at, at))

    def start(self, interfaces: Sequence[str]) -> None:
        self.asked.extend(("start", interface) for interface in interfaces)

    def stop(self, interface: str) -> None:
        self.asked.append(("stop", interface))

    def read_processes(self, since: Mapping[int, float]) -> Mapping[int, Sequence[str]]:
        self.asked.extend(("log", round(at)) for at in since.values())
        if not since.keys() <= self.log.keys():
            raise SourceUnavailable("no journal")
        return self.log


def end_of(source: PppoeServerSource, key: str) -> SourceEnd:
    return source.read_ends([key])[key]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def online(machine: Machine, source: PppoeServerSource) -> SourceSession:
    machine.runs(139, 1335)
    machine.recorded("139-1335.ip", UP)
    (session,) = source.list_sessions()
    return session


@pytest.mark.parametrize("cmdline", [CMDLINE, IN_KERNEL], ids=["user mode", "kernel"])
def test_a_session_has_what_pppd_and_its_hook_show(machine: Machine, cmdline: str) -> None:
    machine.runs(139, 1335, "trunk0.50.7", cmdline=cmdline)
    machine.recorded("139-1335.ip", UP, NOW + 1)
    machine.recorded("139-1335.ipv6", UP6, NOW + 2)
    (session,) = machine.source().list_sessions()
    assert session == SourceSession(
        key="boot 1-139-1335",
        type=SessionType.PPPOE,
        username="alice",
        mac_address=MAC,
        access_interface="trunk0.50.7",
        interface="ppp0",
        ip_address="100.64.100.2",
        ipv6_address="fe80::c5a:1373:cee6:c43d",
        ipv6_prefix=None,
        delegated_prefixes=(),
        acct_session_id="boot 1-139-1335",
        started_at=NOW + 1,
        rate_down=None,
        rate_up=None,
    )


def test_a_session_has_the_prefix_of_its_address(machine: Machine) -> None:
    prefix = IPv6Network("2001:db8:80:20::/64")
    machine.prefixes = {"100.64.100.2": prefix}
    session = online(machine, machine.source())
    assert (session.ipv6_prefix, session.ipv6_gateway) == (str(prefix), str(prefix[1]))


def test_sessions_in_user_mode_are_a_concern_while_they_are_up(machine: Machine) -> None:
    source = machine.source()
    for pid, cmdline in ((139, CMDLINE), (140, IN_KERNEL)):
        machine.runs(pid, 1335, cmdline=cmdline)
        machine.recorded(f"{pid}-1335.ip", UP)
    source.list_sessions()
    assert source.find_concern() == "1 of 2 are in user mode, which is slower than PPPoE in the kernel"
    machine.ends(139)
    source.list_sessions()
    assert source.find_concern() is None


def test_a_session_that_has_ipv6_first_starts_with_ipv4_and_goes_on_with_one(machine: Machine) -> None:
    machine.runs(139, 1335)
    source = machine.source()
    machine.recorded("139-1335.ipv6", UP6)
    assert source.list_sessions() == []
    machine.recorded("139-1335.ip", UP)
    (session,) = source.list_sessions()
    assert (session.ip_address, session.ipv6_address) == ("100.64.100.2", "fe80::c5a:1373:cee6:c43d")
    assert session is source.list_sessions()[0]
    machine.recorded("139-1335.ip", DOWN, NOW - 5)
    (changed,) = source.list_sessions()
    assert (changed.ip_address, changed.ipv6_address) == (None, session.ipv6_address)
    # Another address does not move the start.
    assert changed.started_at == session.started_at


def test_a_session_without_ipv4_starts_some_seconds_later(machine: Machine) -> None:
    machine.runs(139, 1335)
    machine.recorded("139-1335.ipv6", UP6)
    assert machine.source().list_sessions() == []
    machine.clock.now += 5
    assert len(machine.source().list_sessions()) == 1
    # The clock was set back.
    machine.recorded("139-1335.ipv6", UP6, NOW + 3600)
    assert len(machine.source().list_sessions()) == 1


@pytest.mark.parametrize("how", ["waits for its parent", "is dead", "ends now", "has no address"])
def test_a_pppd_that_has_ended_or_has_no_address_has_no_session(machine: Machine, how: str) -> None:
    source = machine.source()
    online(machine, source)
    match how:
        case "waits for its parent":
            machine.runs(139, 1335, state="Z")
        case "is dead":
            machine.runs(139, 1335, state="X")
        case "ends now":
            machine.runs(139, 1335, cmdline="")
        case _:
            machine.recorded("139-1335.ip", DOWN)
    assert source.list_sessions() == []


def test_a_process_id_that_comes_again_is_another_session(machine: Machine) -> None:
    source = machine.source()
    first = online(machine, source)
    machine.runs(139, 99_000, "trunk0.200")
    for name in ("139-99000.ip.new", "x", "139-99000.log"):
        (machine.records / name).write_bytes(b"?")
    assert source.list_sessions() == []
    machine.recorded("139-99000.ip", UP)
    (second,) = source.list_sessions()
    assert second.key != first.key
    assert second.access_interface == "trunk0.200"


@pytest.mark.parametrize("broken", ["records", "proc"])
def test_what_cannot_be_read_is_no_end_of_sessions(machine: Machine, broken: str) -> None:
    source = machine.source()
    online(machine, source)
    if broken == "records":
        machine.records.rename(machine.records.with_name("away"))
    else:
        machine.ends(1)
    with pytest.raises(SourceUnavailable):
        source.list_sessions()


# Services


def test_pppoe_is_served_by_a_service_of_the_interface_and_dhcp_is_refused(machine: Machine) -> None:
    machine.source().serve(["trunk0.100"], SessionType.PPPOE)
    with pytest.raises(SourceRefused):
        machine.source().serve(["trunk0.100"], SessionType.DHCP)
    assert machine.asked == [("start", "trunk0.100")]


def test_sessions_on_a_released_interface_end_by_disconnect(machine: Machine) -> None:
    source = machine.source()
    here = online(machine, source)
    machine.runs(140, 1400, "trunk0.200")
    machine.recorded("140-1400.ip", UP)
    source.release("trunk0.100")
    (there,) = (session for session in source.list_sessions() if session.key != here.key)
    machine.log = {139: BEGIN + STOPPED, 140: BEGIN + STOPPED}
    assert machine.asked == [("stop", "trunk0.100")]
    assert end_of(source, here.key).reason == "admin_disconnect"
    assert end_of(source, there.key).reason == "unknown"


# The end


def test_a_reason_is_read_since_the_start_of_the_process_and_again_if_it_is_late(machine: Machine) -> None:
    started = round((machine.clock.steady() - 60) * os.sysconf("SC_CLK_TCK"))
    machine.log, machine.later = {139: BEGIN, 140: BEGIN + CUT}, {139: BEGIN + GOODBYE}
    ends = machine.source().read_ends([f"boot 1-139-{started}", f"boot 1-140-{started}"])
    assert [end.reason for end in ends.values()] == ["user_request", "lost_carrier"]
    assert set(machine.asked) == {("log", round(machine.clock.wall() - 60))}


def test_a_log_without_an_end_is_read_four_times_and_one_that_hangs_once(machine: Machine) -> None:
    machine.log = {139: BEGIN}
    assert end_of(machine.source(), "boot 1-139-1335").reason == "unknown"
    assert len(machine.asked) == 4
    machine.log.clear()
    machine.asked.clear()
    source, key = machine.source(), "boot 1-139-1335"
    for _ in range(30):
        assert end_of(source, key).reason == "unknown"
    assert len(machine.asked) == 1
    machine.log[139] = BEGIN + GOODBYE
    machine.clock.now += 10
    assert end_of(source, key).reason == "user_request"


def test_an_end_has_the_traffic_that_pppd_counted_and_one_of_another_boot_none(machine: Machine) -> None:
    source = machine.source()
    session = online(machine, source)
    machine.log[139] = BEGIN + GOODBYE
    machine.recorded("139-1335.ip", DOWN)
    machine.ends(139)
    assert end_of(source, session.key).traffic == SourceTraffic(bytes_in=2018983, bytes_out=7575436)
    for key in ("boot 0-139-1335", "139-1335", "boot 1-139-x"):
        assert (end_of(source, key).reason, end_of(source, key).traffic) == ("unknown", None)


def test_without_a_record_of_the_end_the_traffic_is_in_the_log(machine: Machine) -> None:
    source = machine.source()
    session = online(machine, source)
    machine.log[139] = [*BEGIN, "Sent 8 bytes, received 9 bytes.", *BEGIN]
    assert end_of(source, session.key).traffic is None
    machine.log[139] += ["Sent 2 bytes, received 1 bytes.", "Exit."]
    assert end_of(source, session.key).traffic == SourceTraffic(bytes_in=1, bytes_out=2)


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (GOODBYE, "user_request"),
        (["LCP terminated by peer", "Modem hangup"], "user_request"),
        (STOPPED, SIGNALLED),
        (CUT, "lost_carrier"),
        (["Modem hangup", "Connection terminated."], "lost_carrier"),
        (["Terminating connection due to lack of activity.", "Connection terminated."], "idle_timeout"),
        (["Connect time expired", "Connection terminated."], "session_timeout"),
        (["Terminating on signal 1"], None),
        # Of an earlier process with the id.
        ([*GOODBYE, *BEGIN], None),
    ],
)
def test_the_first_cause_counts(end: list[str], cause: str | None) -> None:
    assert parse_end(BEGIN + end)[0] == cause


@pytest.mark.parametrize(
    "line",
    [
        "CHAP peer authentication succeeded for Modem hangup",
        "IPCP terminated by peer (Modem hangup)",
        "pppd 2.4.9 started by root, uid 0x",
    ],
)
def test_text_of_a_subscriber_is_no_cause(line: str) -> None:
    assert parse_end([line]) == (None, None)
    assert parse_end([*CUT, line])[0] == "lost_carrier"


# What comes from pppd


def test_a_user_name_and_a_program_may_be_anything_and_a_record_without_traffic() -> None:
    name = "a\nIFNAME=ppp9 $(x) 'ü' |"
    expected = PppdRecord(True, "ppp0", name, "100.64.100.2", None, None)
    # There is room behind it.
    assert parse_record(encoded({**UP, "PEERNAME": name}).ljust(4096, b"\0")) == expected
    assert parse_record(encoded(UP).replace(b"alice", b"\xff=e")).username == "\ufffd=e"
    assert parse_record(encoded({**UP, "PEERNAME": ""})).username == ""
    assert parse_record(encoded({**DOWN, "BYTES_SENT": ""})).traffic is None
    assert parse_start(b"7 (a) S 1 (b) S " + b"0 " * 18 + b"1335 0") == 1335


@pytest.mark.parametrize(
    ("parse", "data"),
    [
        (parse_record, encoded(UP)[:-1]),
        (parse_record, encoded({**UP, "EVENT": "ip-pre-up"})),
        (parse_record, encoded({**UP, "IFNAME": "../x"})),
        (parse_record, encoded({**UP, "IPREMOTE": "100.64.100"})),
        (parse_record, encoded({**UP6, "LLREMOTE": "fe80::x"})),
        (parse_access, b"pppd\0pty\0"),
        (parse_access, b"pppd\0pty\0pppoe -I trunk0.100 \0"),
        (parse_access, b"pppd\0pty\0pppoe -e 1:56:4f:3a:f1:aa:f6\0"),
        (parse_access, b"pppd\0pty\0pppoe -n -I trunk0.100 -e 1:56:4f:3a:f1:aa:f6:99 -S ''\0"),
        (parse_access, b"pppd\0plugin\0rp-pppoe.so\0nic-trunk0.100\0user\0alice\0"),
    ],
)
def test_a_broken_record_and_another_pppd_are_refused(parse: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        parse(data)


RECORDS = st.lists(st.sampled_from([*encoded(DOWN).split(b"\0"), b"", b"="])).map(b"\0".join)
STATUSES = st.lists(st.sampled_from([b"1", b"(", b")", b"S", b"x", b"\n"])).map(b" ".join)
COMMAND_LINES = st.lists(
    st.sampled_from([b"pty", b"\0", b" -I ", b"trunk0.1", b" -e 1:", MAC.encode(), b"\xff"])
).map(b"".join)


@given(st.binary() | RECORDS | STATUSES | COMMAND_LINES)
@example(encoded({**UP, "IPREMOTE": "\u0661.1.1.1"}))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for parse, kind in ((parse_record, PppdRecord), (parse_start, int | None), (parse_access, PppoeAccess)):
        with suppress(UnreadableRecord):
            assert isinstance(parse(data), kind)


@given(st.lists(st.text() | st.sampled_from([*BEGIN, *GOODBYE, *STOPPED, *CUT])))
def test_any_lines_have_a_known_cause_or_none(lines: list[str]) -> None:
    cause, traffic = parse_end(lines)
    assert cause in {None, SIGNALLED, "user_request", "lost_carrier"}
    assert traffic in {None, SourceTraffic(0, 0)}


# Addresses of the source range, and the settings of a server.


ranges = st.builds(
    lambda number, prefix: IPv4Network((number << 16, prefix)),
    st.integers(0x0A00, 0x0AFF),
    st.integers(16, 30),
)


def blocks(shared: SharedRange, most: int = 100_000) -> list[IPv4Address]:
    """All that VLANs get, one after the other."""
    taken: list[IPv4Address] = []
    while len(taken) < most and (first := shared.find_free_block(set(taken))) is not None:
        taken.append(first)
    return taken


def test_vlans_get_blocks_of_sixteen_from_the_seventeenth_address_and_dhcp_the_second_half() -> None:
    shared = SharedRange(IPv4Network("100.64.0.0/24"))
    assert [str(first) for first in blocks(shared)][::6] == ["100.64.0.16", "100.64.0.112"]
    assert [str(address) for address in shared.dhcp_range] == ["100.64.0.128", "100.64.0.254"]


@given(ranges)
def test_no_address_is_given_away_twice(network: IPv4Network) -> None:
    shared = SharedRange(network)
    given_away = [first + place for first in blocks(shared, 50) for place in range(MAX_BLOCK_SIZE)]
    first, last = shared.dhcp_range
    assert len(set(given_away)) == len(given_away)
    assert all(network.network_address + 1 < address < first for address in given_away)
    assert network.network_address + 1 < first <= last < network.broadcast_address


@pytest.mark.parametrize(("network", "number"), [("10.0.0.0/27", 0), ("10.0.0.0/26", 1), ("10.0.0.0/30", 0)])
def test_a_small_range_has_few_blocks_or_none(network: str, number: int) -> None:
    assert len(blocks(SharedRange(IPv4Network(network)))) == number


@pytest.mark.parametrize(("vlans", "block"), [(1, 16), (7, 16), (8, 8), (14, 8), (57, 1), (112, 1), (500, 1)])
def test_a_range_has_a_block_for_each_vlan_as_large_as_possible(
    document: dict[str, Any], vlans: int, block: int
) -> None:
    document["cgnat"]["source_range"] = "10.0.0.0/24"
    shared = SharedRange.of(RunningConfiguration.of(document).sections, vlans)
    assert shared.block_size == block
    assert len(blocks(shared)) == 112 // block


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("100.64.0.16", "2001:db8:80:20::/64"),
        ("100.64.0.127", "2001:db8:80:fe::/64"),
        ("100.64.0.128", "2001:db8:80:1::/64"),
        ("100.64.0.129", "2001:db8:80:3::/64"),
        ("203.0.113.10", None),
        (None, None),
    ],
)
def test_a_session_has_the_prefix_with_the_place_of_its_address(
    document: dict[str, Any], address: str | None, prefix: str | None
) -> None:
    document["cgnat"]["source_range"] = "100.64.0.0/24"
    document["subscribers"] = {"ipv6_range": "2001:db8::/40"}
    prefixes = SessionPrefixes()
    prefixes.configure(RunningConfiguration.of(document).sections)
    found = prefixes(address)
    assert (None if found is None else str(found)) == prefix


def test_no_two_sessions_have_one_prefix_and_the_last_ones_have_none(document: dict[str, Any]) -> None:
    document["cgnat"]["source_range"], half = "100.64.0.0/24", IPv6Network("2001:db8:0:80::/57")
    document["subscribers"] = {"ipv6_range": "2001:db8::/56"}
    prefixes = SessionPrefixes()
    prefixes.configure(RunningConfiguration.of(document).sections)
    found = [prefixes(str(address)) for address in IPv4Network("100.64.0.0/24")]
    given_away = [prefix for prefix in found if prefix is not None]
    assert len(set(given_away)) == len(given_away) == 128
    assert all(prefix.subnet_of(half) for prefix in given_away)


def test_a_failed_commit_puts_the_prefixes_back(document: dict[str, Any]) -> None:
    prefixes = SessionPrefixes()
    document["subscribers"] = {"ipv6_range": "2001:db8::/40"}
    put_back = prefixes.configure(RunningConfiguration.of(document).sections)
    assert prefixes("100.64.0.16") is not None
    put_back()
    assert prefixes("100.64.0.16") is None


def test_a_fixed_address_makes_room_for_fewer_blocks(document: dict[str, Any]) -> None:
    document["cgnat"]["source_range"] = "10.0.0.0/24"
    document["subscribers"] = {
        "local": [{"username": "alice", "password": "pw-alice", "ip_address": "10.0.0.20"}]
    }
    shared = SharedRange.of(RunningConfiguration.of(document).sections, 7)
    assert shared.block_size == 8
    assert len(blocks(shared)) == shared.block_count == 13


def test_a_block_with_the_fixed_address_of_a_subscriber_is_given_to_no_vlan() -> None:
    shared = SharedRange(IPv4Network("10.0.0.0/24"), frozenset({IPv4Address("10.0.0.31")}))
    assert str(blocks(shared)[0]) == "10.0.0.32"
    assert not shared.has_block(IPv4Address("10.0.0.16"))


@pytest.mark.parametrize("address", ["10.0.0.0", "10.0.0.17", "10.0.0.128", "10.0.1.16", "9.255.255.240"])
def test_what_is_not_the_beginning_of_a_block_is_none(address: str) -> None:
    assert not SharedRange(IPv4Network("10.0.0.0/24")).has_block(IPv4Address(address))


@given(st.booleans(), st.lists(st.ip_addresses(v=4), max_size=2), st.sampled_from([1, 2, 4, 8, 16]))
def test_the_settings_of_a_server_are_read_as_they_were_written(
    has_radius: bool, dns_servers: list[IPv4Address], block: int
) -> None:
    addresses = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.16")
    written = PppoeSettings(*addresses, has_radius, "bng-1.isp.example", tuple(dns_servers), block)
    assert PppoeSettings.parse(str(written)) == written
    assert str(written).count("\n") == 1 + bool(dns_servers)


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "10.0.0.1 10.0.0.16 secrets bng1", "10.0.0.1 10.0.0.16 secrets bng1\n\n"),
        *(f"10.0.0.1 {rest}\n" for rest in ("10.0.0.16 other bng1", "10.0.0 secrets bng1")),
        *(f"10.0.0.1 {rest}\n" for rest in ("10.0.0.16/28 secrets bng1", "10.0.0.16 secrets")),
        *(
            f"10.0.0.1 10.0.0.16 secrets bng1\n{dns_servers}"
            for dns_servers in ("10.0.0.2", "10.0.0\n", "10.0.0.2 \n", "10.0.0.2 10.0.0.3 10.0.0.4\n", "x\n")
        ),
    ],
)
def test_settings_that_the_core_did_not_write_are_none(text: str) -> None:
    assert PppoeSettings.parse(text) is None


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("trunk0.300", "trunk0.300"),
        ("trunk-0.50.7", r"trunk\x2d0.50.7"),
        (".a@b+c_d", r"\x2ea\x40b\x2bc_d"),
        ("a/b", "a-b"),
        ("\xe9", r"\xc3\xa9"),
    ],
)
def test_the_name_of_an_instance_is_escaped_as_systemd_does(name: str, escaped: str) -> None:
    assert name_instance("gateway-pppoe@.service", name) == f"gateway-pppoe@{escaped}.service"
