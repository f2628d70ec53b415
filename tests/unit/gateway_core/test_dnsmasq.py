"""The formats of dnsmasq and of its script, and the file of dnsmasq."""

import sys
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway_contract.base.errors import StepFailed
from gateway_core.configuration.running import RunningConfiguration, add_former_range
from gateway_core.gateways.linux.daemons.daemon import PlacedFiles
from gateway_core.gateways.linux.daemons.dnsmasq import (
    DnsmasqDaemon,
    Lease,
    LeaseRecord,
    LeaseRecords,
    UnreadableLease,
    is_interface_name,
    parse_leases,
    parse_mac_address,
    parse_record,
)
from gateway_core.gateways.linux.daemons.systemd import Systemd
from tests.support.core_clock import StillClock
from tests.support.documents import put
from tests.support.rendered import profile, valid_documents

#: Of dnsmasq 2.90, with udhcpc 1.35.
CAPTURED = b"1795305076 52:61:db:13:7f:03 100.64.9.32 * 01:52:61:db:13:7f:03\n"
V6 = b"duid 00:01:00:01:32:95:74:d2:fa:e3:a2:a4:8f:08\n"
RECORD = b"0123456789abcdef 1795304476 52:61:db:13:7f:03 trunk0.301 1795305076 live 84a7e8343baf37f9\n"

MAC = "52:61:db:13:7f:03"
ADDRESS = "100.64.9.32"


# The file of dnsmasq until a commit of another range is confirmed


def held_lines(folder: Path, document: dict[str, Any], leases: bytes) -> list[str]:
    """What the file has of the former range, 100.64.9.0/24."""
    (folder / "leases").write_bytes(leases)
    files = PlacedFiles(folder)
    daemon = DnsmasqDaemon(Systemd(), files, is_source=True, leases=folder / "leases")
    configuration = add_former_range(RunningConfiguration.of(document).sections, IPv4Network("100.64.9.0/24"))
    rendered = daemon.render(configuration)
    daemon.verify(rendered)
    files.place("dnsmasq.conf", rendered["dnsmasq.conf"])
    lines = rendered["dnsmasq.conf"].splitlines()
    return [line for line in lines if "held" in line or line.startswith("dhcp-host=") or ",120" in line]


def test_until_the_confirmation_clients_with_a_lease_keep_it_and_new_ones_get_a_short_one(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    document["cgnat"]["source_range"] = "100.65.0.0/16"
    elsewhere = b"1795305076 52:61:db:13:7f:04 100.64.8.32 * *\n"
    strange = b"1795305076 06-52:61:db:13:7f:05 100.64.9.33 * *\n"
    expected = [
        "dhcp-range=set:pool0,100.65.128.0,100.65.255.254,255.255.0.0,120",
        "dhcp-range=set:held,100.64.9.0,static,255.255.255.0,600",
        "dhcp-option=tag:held,option:router,100.64.9.1",
        f"dhcp-host={MAC},{ADDRESS}",
    ]
    with pytest.raises(StepFailed, match="cannot read the leases of dnsmasq"):
        held_lines(tmp_path, document, CAPTURED[:-1])
    assert held_lines(tmp_path, document, CAPTURED + elsewhere + strange) == expected
    # A lease that ended meanwhile may come back, and no other client gets one there.
    assert held_lines(tmp_path, document, b"") == expected


def test_no_client_keeps_an_address_that_the_new_range_has(tmp_path: Path, document: dict[str, Any]) -> None:
    # The former range is the half of PPPoE now.
    document["cgnat"]["source_range"] = "100.64.8.0/22"
    lines = held_lines(tmp_path, document, CAPTURED.replace(b"100.64.9.32", b"100.64.9.200"))
    assert not [line for line in lines if line.startswith("dhcp-host=")]


# The lease file


DUID = "00:01:00:01:02"


@pytest.mark.parametrize(
    ("line", "lease"),
    [
        (CAPTURED, Lease(ADDRESS, 1795305076, MAC, "01:52:61:db:13:7f:03")),
        (b"1 52:61:db:13:7f:03 100.64.9.32 \xff;$(x) *\n", Lease(ADDRESS, 1, MAC, None)),
        (V6 + f"2 11189196 2001:db8::1 * {DUID}\n".encode(), Lease("2001:db8::1", 2, None, DUID)),
        # A temporary address.
        (V6 + f"2 T11189196 2001:db8::1 * {DUID}\n".encode(), Lease("2001:db8::1", 2, None, DUID)),
    ],
)
def test_a_line_of_dnsmasq_is_a_lease(line: bytes, lease: Lease) -> None:
    assert parse_leases(line) == {lease.address: lease}


def test_a_file_that_is_not_whole_is_unreadable() -> None:
    for data in (CAPTURED[:-1], CAPTURED + CAPTURED[:40], V6[:-1]):
        with pytest.raises(UnreadableLease):
            parse_leases(data)


@pytest.mark.parametrize(
    "line",
    [CAPTURED, b"1 52:61:db:13:7f:03\n", b"1 1 \xd9\xa1.64.9.3 * *\n", b"1 1 fe80::1%eth0 * *\n"],
)
def test_a_line_without_an_address_of_its_own_is_skipped(line: bytes) -> None:
    assert parse_leases(CAPTURED + line + V6) == parse_leases(CAPTURED)


@pytest.mark.parametrize("length", [0, 1, 6, 16])
def test_the_hardware_of_a_client_may_have_any_length(length: int) -> None:
    # As dnsmasq 2.90 writes it for Ethernet (htype 1), and for token ring.
    octets = ":".join(["0a"] * length)
    for hardware in (octets or "01-", f"06-{octets}"):
        line = f"1 {hardware} 100.64.9.32 * *\n".encode()
        assert parse_leases(line)[ADDRESS].hardware == hardware
        record = parse_record(RECORD.replace(b"52:61:db:13:7f:03", hardware.encode()))
        is_ethernet = length == 6 and hardware == octets
        assert parse_mac_address(record.hardware) == (octets if is_ethernet else None)


def test_a_log_line_has_nothing_that_a_subscriber_sent(caplog: pytest.LogCaptureFixture) -> None:
    parse_leases(CAPTURED + V6)
    assert caplog.messages == []
    parse_leases(b"1 52:61:db:13:7f:04 100.64.9.34 evil evil\n")
    assert len(caplog.messages) == 1 and "evil" not in caplog.text


def test_a_lease_is_over_after_its_last_second_and_an_endless_one_never() -> None:
    lease = parse_leases(CAPTURED)[ADDRESS]
    assert not lease.has_ended(1795305076.9)
    assert lease.has_ended(1795305077)
    assert not parse_leases(b"0 52:61:db:13:7f:03 100.64.9.32 * *\n")[ADDRESS].has_ended(2e9)


_WORDS = st.sampled_from(
    [*CAPTURED.split(), *RECORD.split(), *b"duid * T1 2001:db8::1 06- - 0".split(), b"\n", b" ", b""]
)


@given(st.binary() | st.lists(_WORDS | st.binary(max_size=6)).map(b" ".join))
def test_any_bytes_are_leases_and_a_record_or_unreadable(data: bytes) -> None:
    with suppress(UnreadableLease):
        assert all(address == lease.address for address, lease in parse_leases(data).items())
    with suppress(UnreadableLease):
        assert parse_record(data).state in ("live", "ended", "expired")


# The records of the script


def test_a_line_of_the_script_is_a_record() -> None:
    record = LeaseRecord("0123456789abcdef", 1795304476, MAC, "trunk0.301", "live", "84a7e8343baf37f9")
    assert parse_record(RECORD) == record
    assert parse_record(RECORD.replace(b"84a7e8343baf37f9", b"-")).boot_id is None
    assert parse_record(RECORD.replace(b"trunk0.301", b"-")).interface is None
    assert parse_record(RECORD.replace(b"live", b"expired")).state == "expired"


@pytest.mark.parametrize(
    "data",
    [
        RECORD.replace(b"live", b"dead"),
        RECORD.replace(b"trunk0.301", b"--help"),
        RECORD.replace(b" live", b""),
        RECORD.replace(b"84a7e8343baf37f9", b"--help"),
        RECORD.replace(b"\n", b" 1\n"),
        RECORD.replace(b"0123456789abcdef", b"0123456789ABCDEF"),
        RECORD.replace(b"1795304476", "\u0661".encode()),
        RECORD.replace(b"1795305076", b"later"),
    ],
)
def test_a_record_that_the_script_did_not_write_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableLease):
        parse_record(data)


def test_a_record_that_is_gone_when_it_is_read_ends_no_other_session(tmp_path: Path) -> None:
    records = LeaseRecords(tmp_path / "leases", StillClock())
    assert records.read() == {}
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases/100.64.0.10").write_bytes(RECORD)
    assert list(records.read()) == ["100.64.0.10"]
    # The folder lists it, and it cannot be opened: the script has removed it, as it does after the end.
    (tmp_path / "leases/100.64.0.11").symlink_to("nowhere")
    assert list(records.read()) == ["100.64.0.10"]


# The file


def rendered(document: dict[str, Any]) -> dict[str, str]:
    """Verified."""
    daemon = DnsmasqDaemon(Systemd(), PlacedFiles(Path("/nowhere")), is_source=True)
    files = daemon.render(RunningConfiguration.of(document).sections)
    daemon.verify(files)
    return dict(files)


def test_the_file_has_one_range_for_all_vlans(document: dict[str, Any]) -> None:
    document["demux"]["trunks"] = ["trunk0"]
    put(document, "cgnat.source_range", "100.64.9.0/24")
    local = {"username": "alice", "password": "secret-1", "ip_address": "100.64.9.200"}
    document["subscribers"] = {"dns_servers": ["192.0.2.53", "192.0.2.54"], "local": [local]}
    assert rendered(document)["dnsmasq.conf"].splitlines() == [
        "port=0",
        "bind-dynamic",
        "interface=trunk0.*",
        "dhcp-authoritative",
        "no-ping",
        "dhcp-ignore-clid",
        "dhcp-lease-max=127",
        "dhcp-leasefile=/var/lib/gateway-dnsmasq/leases",
        "pid-file=/run/gateway-dnsmasq/dnsmasq.pid",
        f"dhcp-script={sys.prefix}/dhcp-lease",
        "script-on-renewal",
        "dhcp-range=set:pool0,100.64.9.128,100.64.9.254,255.255.255.0,600",
        "dhcp-option=tag:pool0,option:router,100.64.9.1",
        "dhcp-host=id:reserved,100.64.9.200,ignore",
        "dhcp-option=option:dns-server,192.0.2.53,192.0.2.54",
    ]


def test_dnsmasq_runs_for_any_trunk_and_any_name_of_its_vlans(document: dict[str, Any]) -> None:
    document["interfaces"]["trunks"] = document["demux"]["trunks"] = ["enp129s0f1"]
    document["demux"]["vlan_profiles"] = [profile("dhcp", "dhcp", "1-4094", "1-4094")]
    text = rendered(document)["dnsmasq.conf"]
    assert "interface=enp129s0f1.*\ninterface=9s0f1.*\n" in text
    document["demux"]["vlan_profiles"] = []
    assert "interface=enp129s0f1.*\n" in rendered(document)["dnsmasq.conf"]
    document["demux"]["trunks"] = []
    assert rendered(document) == {}


@given(valid_documents())
@settings(max_examples=40)
def test_the_file_of_every_valid_configuration_passes(document: dict[str, Any]) -> None:
    trunks = document["demux"]["trunks"]
    assume(all(is_interface_name(trunk) for trunk in trunks))
    assert bool(rendered(document)) == bool(trunks)


@pytest.mark.parametrize("line", ["interface=a b.*", "interface=*", "Port=53", ""])
def test_a_line_that_dnsmasq_would_not_take_as_it_is_meant_is_refused(line: str) -> None:
    daemon = DnsmasqDaemon(Systemd(), PlacedFiles(Path("/nowhere")), is_source=True)
    with pytest.raises(StepFailed) as refused:
        daemon.verify({"dnsmasq.conf": f"port=0\n{line}\nno-ping\n"})
    assert refused.value.reason == "dnsmasq.conf, line 2 is not of its form"
