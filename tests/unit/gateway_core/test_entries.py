"""Each parser with one bad entry among good ones: the others are read, the bad one is logged and counted."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.accel_command_line import (
    COLUMNS,
    UnreadableReply,
    parse_radius_servers,
    parse_sessions,
)
from gateway_core.gateways.linux.daemons.accel_ppp import IpoeInterfaces
from gateway_core.gateways.linux.daemons.dnsmasq import LeaseRecords, parse_leases
from gateway_core.gateways.linux.daemons.frr import BgpReader, FrrFolders
from gateway_core.gateways.linux.daemons.pppd import PppdJournal
from gateway_core.gateways.linux.dataplane.nftables import UNREADABLE_TYPE, Nft
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry, count_skipped
from gateway_core.gateways.linux.kernel import links, qdiscs
from gateway_core.gateways.linux.kernel import netlink as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.netlink import KernelError
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.kernel.watcher import ALL_PARTS, ChangedPart, parse_events
from gateway_core.gateways.linux.sessions.commit_ends import PendingCommit, PendingCommits
from tests.support.accel import Peer, table
from tests.support.core_clock import StillClock
from tests.support.documents import valid_document
from tests.support.sources import ListedSource, Lives, listed
from tests.unit.gateway_core.test_dnsmasq import CAPTURED, RECORD
from tests.unit.gateway_core.test_linux_dependencies import CAPTURE
from tests.unit.gateway_core.test_netlink_messages import MULTIPATH, PEER, PPP, REDIRECT, TBF, VIA_IPV6, VLAN
from tests.unit.gateway_core.test_pppoe_server import UP, Machine

CUT = b"\0"
CONFIGURATION = RunningConfiguration.of(valid_document()).sections


@dataclass(frozen=True)
class Case:
    """A parser. `read` reads the good entries, with or without a bad one, in a folder of its own."""

    source: str
    kind: str
    read: Callable[[Path, bool], object]


def printing(folder: Path, name: str, output: str) -> str:
    """A program that prints a text and ends."""
    program, file = folder / name, folder / f"{name}.out"
    file.write_text(output)
    program.write_text(f"#!/bin/sh\nexec cat {file}\n")
    program.chmod(0o755)
    return str(program)


def leases(folder: Path, bad: bool) -> object:
    line = b"1795305076 52:61:db:13:7f:09 100.64.9.999 * *\n" if bad else b""
    return parse_leases(line + CAPTURED)


def lease_records(folder: Path, bad: bool) -> object:
    (folder / "100.64.9.32").write_bytes(RECORD)
    if bad:
        (folder / "100.64.9.33").write_bytes(bytes(40))
    return LeaseRecords(folder, StillClock()).read()


def pppd_case(damaged: str) -> Case:
    """Two sessions of pppd, the second with a damaged file, or none."""

    def read(folder: Path, bad: bool) -> object:
        machine = Machine(folder)
        for pid in (139, 140):
            machine.runs(pid, 1335)
            machine.recorded(f"{pid}-1335.ip", UP)
        if bad:
            (folder / damaged).write_bytes(b"EVENT=ip-up\0")
        else:
            machine.ends(140)
        return machine.source().list_sessions()

    return Case("pppoe-server", "record", read)


def _journal(bad: bool) -> str:
    entry = {"_PID": "7", "__REALTIME_TIMESTAMP": "1700000000000000", "MESSAGE": "Exit.", "__CURSOR": "7"}
    line = json.dumps(entry) + "\n"
    return line + ('{"_PID": "seven"\n' if bad else "") + line


def log_of_ends(folder: Path, bad: bool) -> object:
    journal = PppdJournal([printing(folder, "journalctl", _journal(bad))])
    return journal.read_processes({7: 1_699_999_999.0})


def log_of_sign_ons(folder: Path, bad: bool) -> object:
    return PppdJournal([printing(folder, "journalctl", _journal(bad))]).read_lines("--since=@0")


def accel_sessions(another: Peer) -> Case:
    def read(folder: Path, bad: bool) -> object:
        peers = [Peer(f"{number:016x}", ip=f"100.64.0.{number}") for number in range(3)]
        return parse_sessions(accel_table(*peers, *([another] if bad else [])), 1_700_000_000)

    return Case("accel-ppp", "session", read)


def accel_table(*peers: Peer) -> bytes:
    return table(list(COLUMNS), [peer.row(COLUMNS, 4) for peer in peers])


def accel_servers(folder: Path, bad: bool) -> object:
    other = CAPTURE[CAPTURE.index(b"radius") :].replace(b"sent: 3", b"sent: many")
    return parse_radius_servers(CAPTURE + (other if bad else b""))


def ipoe_interfaces(folder: Path, bad: bool) -> object:
    file = folder / "interfaces"
    file.write_bytes(b"interface=lo\n" + (b"interface=\xff\n" if bad else b""))
    IpoeInterfaces(file, lambda: None).close()
    return file.read_bytes()


def frr_neighbours(folder: Path, bad: bool) -> object:
    return _summary(folder, {"peers": {"10.0.0.1": {"state": "Idle"}, **({"10.0.0.2": 7} if bad else {})}})


def frr_families(folder: Path, bad: bool) -> object:
    return _summary(folder, {"peers": {"10.0.0.1": {}}}, {"ipv6Unicast": {"peers": [1]}} if bad else {})


def _summary(folder: Path, family: dict[str, Any], others: dict[str, Any] | None = None) -> object:
    printing(folder, "vtysh", json.dumps({"ipv4Unicast": family, **(others or {})}))
    return BgpReader(FrrFolders(*[folder] * 4), 60).read_bgp_summary()


def _dumped(read: Callable[[], object], *bodies: bytes) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nl, "_exchange", lambda *_: [nl.Reply(0, list(bodies))])
        return read()


def kernel_case(
    kind: str, read: Callable[[], object], *good: bytes, bad: bytes = CUT, place: int = 1
) -> Case:
    """A reading of the kernel, with the good messages, and the place of the bad one among them."""

    def read_with(_: Path, is_bad: bool) -> object:
        return _dumped(read, *good[:place], *([bad] if is_bad else []), *good[place:])

    return Case("kernel", kind, read_with)


# A tag that the gateway does not know.
STRANGE_VLAN = VLAN.replace(bytes.fromhex("88a8"), bytes.fromhex("9100"))
THRESHOLDS = bytes(4) + b"".join(nl.pack_u32(number, number) for number in range(2, 5))
COUNTERS = rt.IF_STATS_MSG.pack(0, 0, 1, 0) + nl.pack_attribute(rt.IFLA_STATS_LINK_64, bytes(64))
KERNEL = KernelReader()


def kernel_questions(folder: Path, bad: bool) -> object:
    replies = [nl.Reply(0, [TBF]), nl.Reply(0, [CUT] if bad else []), nl.Reply(0, [TBF])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nl, "_exchange", lambda *_: replies)
        return KernelReader().find_qdiscs([(1, 0), (2, 0), (3, 0)])


def kernel_events(folder: Path, bad: bool) -> object:
    good = nl.pack_request(rt.RTM_NEWQDISC, 0, 0, rt.TCMSG.pack(0, 7, 0, 0, 0))
    return parse_events(good + nl.pack_request(rt.RTM_NEWQDISC, 0, 0, CUT)) if bad else (ALL_PARTS, set())


def nft_objects(folder: Path, bad: bool) -> object:
    objects: list[Any] = [{"metainfo": {}}, {"counter": {"name": "elsewhere", "packets": 7}}]
    strange = {"counter": {"name": "flood", "packets": "many"}}
    program = printing(folder, "nft", json.dumps({"nftables": [*objects, *([strange] if bad else [])]}))
    found = Nft(program).list_table("inet gateway_dhcp")
    assert found is not None
    return [each for each in found if UNREADABLE_TYPE not in each]


def stored_case(change: str) -> Case:
    """The sessions of an earlier life, with a change in SQL of the second one's row."""
    return Case("core", "session", lambda folder, bad: _restarted(folder, change if bad else None))


SET_ADDRESS = "CAST(replace(CAST(record AS TEXT), '100.64.0.11', '100.64.0.999') AS BLOB)"


def _restarted(folder: Path, change: str | None) -> object:
    source = ListedSource()
    lives = Lives(folder, source)
    source.up(listed("a"))
    if change is not None:
        source.up(listed("b", ip_address="100.64.0.11"))
    lives.poll()
    lives.kill()
    if change is not None:
        with closing(sqlite3.connect(folder / "sessions.sqlite")) as database, database:
            assert database.execute(f"UPDATE session SET {change} WHERE name = x'62'").rowcount == 1
    lives.start()
    return [session.summary.username for session in lives.tracker.sessions.all()]


def pending_commits(folder: Path, bad: bool) -> object:
    owed = PendingCommits(folder, CONFIGURATION)
    owed.replace([PendingCommit((1, 2), CONFIGURATION)])
    file = folder / "owed-ends.json"
    (kept,) = msgspec.json.decode(file.read_bytes())
    file.write_bytes(msgspec.json.encode([*([{"ids": "all"}] if bad else []), kept]))
    return PendingCommits(folder, CONFIGURATION).commits


CASES = [
    Case("dnsmasq", "lease", leases),
    Case("dnsmasq", "record", lease_records),
    pppd_case("records/140-1335.ip"),
    pppd_case("proc/140/cmdline"),
    Case("pppoe-server", "log_line", log_of_ends),
    Case("pppoe-server", "log_line", log_of_sign_ons),
    accel_sessions(Peer(f"{9:016x}", ip="100.64.0.999")),
    # An id that comes twice.
    accel_sessions(Peer(f"{1:016x}", ip="100.64.0.1")),
    Case("accel-ppp", "radius_server", accel_servers),
    Case("core", "ipoe_interface", ipoe_interfaces),
    Case("frr", "neighbor", frr_neighbours),
    Case("frr", "family", frr_families),
    kernel_case("link", KERNEL.read_link_entries, VLAN, PPP),
    kernel_case("link", KERNEL.read_links, VLAN, PPP, bad=STRANGE_VLAN, place=0),
    kernel_case("address", KERNEL.read_addresses, PEER),
    kernel_case("route", lambda: KERNEL.read_routes([254]), MULTIPATH, VIA_IPV6),
    kernel_case("route", lambda: KERNEL.read_fib_entries(2, 140), MULTIPATH, VIA_IPV6),
    kernel_case("rule", KERNEL.read_rules, VIA_IPV6),
    kernel_case("qdisc", KERNEL.read_qdisc_entries, TBF),
    kernel_case("filter", lambda: KERNEL.read_filters(10), REDIRECT),
    kernel_case(
        "neighbour_table", lambda: links.read_thresholds(2), THRESHOLDS, bad=THRESHOLDS[:-1], place=0
    ),
    kernel_case("counters", KERNEL.read_statistics, COUNTERS, bad=COUNTERS[:-9], place=0),
    Case("kernel", "qdisc", kernel_questions),
    Case("kernel", "event", kernel_events),
    Case("nftables", "object", nft_objects),
    stored_case("record = x'7b'"),
    stored_case(f"record = {SET_ADDRESS}"),
    stored_case("name = 'b'"),
    Case("core", "owed_end", pending_commits),
]


def skipped(source: str, kind: str) -> int:
    return {(each.source, each.kind): each.entries for each in count_skipped()}[source, kind]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.source} {case.kind}")
def test_a_bad_entry_hides_no_other_and_is_logged_and_counted(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    expected = case.read(good, False)
    assert not caplog.records
    before = skipped(case.source, case.kind)
    assert case.read(bad, True) == expected
    assert skipped(case.source, case.kind) > before
    # One for each reading: the kernel tells of each family of addresses by itself.
    (line,) = set(caplog.messages)
    assert line.startswith("cannot read 1 of ")


# The reader itself

READER = EntryReader("test", "number", "the numbers of a test", "such a number is none")


def number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise UnreadableEntry("it is no number") from error


@pytest.mark.parametrize(
    ("name", "readings", "lines", "entries"),
    [
        ("it stays, is gone, and comes again", [["1", "x"], ["x", "2"], ["1"], ["x"]], 2, 2),
        ("another one counts and is not logged", [["x"], ["x", "y"]], 1, 2),
    ],
)
def test_a_bad_entry_is_logged_and_counted_once_while_it_stays(
    name: str, readings: list[list[str]], lines: int, entries: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = skipped("test", "number")
    for reading in readings:
        READER.read(reading, number, place=name)
        # A clean reading of another place is no end of it.
        READER.read(["1"], number, place="clean")
    line = "cannot read 1 of the numbers of a test: it is no number; such a number is none"
    assert caplog.messages == [line] * lines
    assert skipped("test", "number") == before + entries


# Without a good entry, the format is another one


def test_a_reply_without_an_entry_that_can_be_read_is_an_error() -> None:
    with pytest.raises(KernelError, match="cannot read the links: no reply of the kernel is in its format"):
        _dumped(KernelReader().read_links, CUT, CUT)
    with pytest.raises(UnreadableReply):
        parse_sessions(accel_table(Peer("?" * 16)), 1_700_000_000)


# What a bad entry means for its own session


def test_a_lease_whose_address_alone_can_be_read_is_one_with_the_hardware_of_its_record() -> None:
    for line in (
        b"1795305076 ?? 100.64.9.32 * *\n",
        b"soon 52:61:db:13:7f:03 100.64.9.32 * *\n",
        b"1795305076 52:61:db:13:7f:03 100.64.9.32\n",
    ):
        lease = parse_leases(line)["100.64.9.32"]
        assert (lease.expires, lease.hardware, lease.client_id) == (0, None, None)


def test_a_row_of_accel_ppp_of_which_the_id_alone_can_be_read_is_the_former_session() -> None:
    before = accel_table(Peer("1" * 16))
    (session,) = parse_sessions(before, 1_700_000_000)
    damaged = accel_table(Peer("1" * 16, ip="100.64.0.999"))
    assert parse_sessions(damaged, 1_700_000_005, {session.key: session}) == [session]
    assert parse_sessions(accel_table(), 1_700_000_005, {session.key: session}) == []


@pytest.mark.parametrize("damaged", ["records/139-1335.ip", "proc/139/cmdline"])
def test_a_pppd_that_cannot_be_read_is_the_former_session_until_it_ends(tmp_path: Path, damaged: str) -> None:
    machine = Machine(tmp_path)
    machine.runs(139, 1335)
    machine.recorded("139-1335.ip", UP)
    (session,) = machine.source().list_sessions()
    (tmp_path / damaged).write_bytes(b"EVENT=ip-up\0")
    source = machine.source()
    assert source.list_sessions({session.key: session}) == [session]
    machine.ends(139)
    assert source.list_sessions({session.key: session}) == []


def test_a_source_gets_the_sessions_that_it_listed_last_also_those_of_an_earlier_life(tmp_path: Path) -> None:
    source = ListedSource()
    lives = Lives(tmp_path, source)
    source.up(listed("a"))
    lives.poll()
    assert not source.former
    lives.restart()
    lives.poll()
    assert source.former == source.listed


def test_after_an_unreadable_event_all_is_read_again_and_a_qdisc_is_none(tmp_path: Path) -> None:
    event = nl.pack_request(rt.RTM_NEWQDISC, 0, 0, rt.TCMSG.pack(0, 7, 0, 0, 0))
    assert parse_events(event) == ({ChangedPart.QDISCS}, {7})
    for cut in (1, 17):
        assert parse_events(event + event[:cut]) == (ALL_PARTS, set())
    assert kernel_questions(tmp_path, bad=True) == [qdiscs.parse_qdisc(TBF), None, qdiscs.parse_qdisc(TBF)]


def test_a_table_with_an_object_that_cannot_be_read_is_not_the_one_without(tmp_path: Path) -> None:
    program = printing(tmp_path, "nft", json.dumps({"nftables": [{"rule": {}}]}))
    assert Nft(program).list_table("inet gateway") == [{UNREADABLE_TYPE: {}}]
