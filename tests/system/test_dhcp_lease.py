"""The script of dnsmasq, run as dnsmasq 2.90 runs it, and its records at an upgrade."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway_core.gateways.linux.daemons.dnsmasq import LeaseRecord, parse_record
from tests.support.dnsmasq import LEASE_SCRIPT

MAC = "52:61:db:13:7f:03"
ADDRESS = "100.64.9.32"


class Script:
    """The script, as dnsmasq runs it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, event: str, *arguments: str, **environment: str) -> None:
        """Arguments of an event of the lease, by default: its MAC address and address."""
        subprocess.run(
            [LEASE_SCRIPT, event, *(arguments or (MAC, ADDRESS))],
            check=True,
            env={"STATE_DIRECTORY": str(self._folder), **environment},
        )

    def happen(self, event: str, expires: str | int, *arguments: str, vlan: int = 302, **more: str) -> None:
        more |= {"DNSMASQ_INTERFACE": f"trunk0.{vlan}", "DNSMASQ_LEASE_EXPIRES": str(expires)}
        self.run(event, *arguments, **more)

    def record(self, address: str = ADDRESS) -> LeaseRecord:
        return parse_record((self._folder / "records" / address).read_bytes())


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def later() -> int:
    return int(time.time()) + 600


def add(script: Script, expires: int, mac: str = MAC) -> LeaseRecord:
    script.happen("add", expires, mac, ADDRESS)
    return script.record()


def test_a_new_lease_has_a_record_with_a_key_of_its_own(script: Script, later: int) -> None:
    record = add(script, later)
    assert (record.hardware, record.interface, record.state) == (MAC, "trunk0.302", "live")
    assert abs(record.started_at - time.time()) < 60
    assert add(script, later).key != record.key


def test_a_renewal_keeps_the_key_on_the_same_vlan_alone(script: Script, later: int) -> None:
    record = add(script, later)
    # A guess at the start of dnsmasq changes nothing.
    script.happen("old", later, vlan=301, DNSMASQ_DATA_MISSING="1")
    assert script.record() == record
    script.happen("old", later + 9, DNSMASQ_DATA_MISSING="1")
    assert script.record() == record
    script.happen("old", later + 18, vlan=301, DNSMASQ_DATA_MISSING="1")
    moved = script.record()
    assert moved.interface == "trunk0.301"
    assert moved.key != record.key
    script.happen("old", later + 18, "02:00:00:00:00:08", ADDRESS, vlan=301)
    assert script.record().key != moved.key


def test_a_record_has_the_boot_in_which_its_key_was_made(script: Script, later: int) -> None:
    for number, event in enumerate(("add", "old"), 1):
        script.happen(event, later + number, BOOT_ID=str(number))
        assert script.record().boot_id == "1"


@pytest.mark.parametrize("damage", [b"", bytes(90), b"\xff" * 90], ids=["empty", "zeros", "no text"])
def test_a_renewal_writes_a_damaged_record_anew(
    script: Script, later: int, tmp_path: Path, damage: bytes
) -> None:
    add(script, later)
    (tmp_path / "records" / ADDRESS).write_bytes(damage)
    script.happen("old", later)
    assert (script.record().hardware, script.record().interface) == (MAC, "trunk0.302")


@pytest.mark.parametrize("place", [1, 4], ids=["start", "expiry"])
def test_a_damaged_record_does_not_end_the_script_of_another_lease(
    script: Script, later: int, tmp_path: Path, place: int
) -> None:
    add(script, later)
    damaged = tmp_path / "records/100.64.9.33"
    words = (tmp_path / "records" / ADDRESS).read_text().split()
    words[place] = "?"
    damaged.write_text(" ".join(words) + "\n")
    # Those that ended long ago are looked for.
    (tmp_path / "records/.pruned").unlink()
    os.utime(damaged, (0, 0))
    add(script, later, "02:00:00:00:00:08")
    assert not damaged.exists()


def test_a_lease_that_is_deleted_has_ended_or_after_its_expiry_has_expired(
    script: Script, later: int
) -> None:
    record = add(script, later)
    script.run("del", DNSMASQ_LEASE_EXPIRES=str(later))
    assert script.record() == replace(record, state="ended")
    record = add(script, later)
    script.run("del", DNSMASQ_LEASE_EXPIRES=str(int(time.time()) - 1))
    assert script.record() == replace(record, state="expired")


def test_a_lease_of_dhcpv6_has_the_mac_address_that_dnsmasq_knows(
    script: Script, later: int, tmp_path: Path
) -> None:
    lease = ("00:01:00:01:02", "2001:db8:5::1a1")
    # Nobody listens there.
    script.happen("add", later, *lease, DNSMASQ_MAC=MAC, GATEWAY_TRIGGER=str(tmp_path / "none"))
    assert script.record("2001:db8:5::1a1").hardware == MAC


def test_only_an_address_becomes_the_name_of_a_file(script: Script, tmp_path: Path) -> None:
    for address in ("../../etc/passwd", "", "100.64.9.32/24", "100.64.9"):
        with pytest.raises(subprocess.CalledProcessError):
            script.run("add", MAC, address, DNSMASQ_INTERFACE="trunk0.302")
    # Other events of dnsmasq are ignored.
    script.run("tftp", "12", ADDRESS, "/file")
    assert list(tmp_path.iterdir()) == []


def test_a_record_goes_some_time_after_the_end_of_its_lease(
    script: Script, later: int, tmp_path: Path
) -> None:
    records = tmp_path / "records"
    for address in ("100.64.9.40", "100.64.9.41", "100.64.9.42"):
        script.happen("add", later, MAC, address)
    # A power cut took the lease of this one.
    script.happen("add", int(time.time()) - 700, MAC, "100.64.9.43")
    for address in ("100.64.9.41", "100.64.9.42"):
        script.run("del", MAC, address, DNSMASQ_LEASE_EXPIRES=str(later))
    for name in ("100.64.9.40", "100.64.9.41", "100.64.9.43", ".pruned"):
        os.utime(records / name, (1, 1))
    add(script, later)
    assert {path.name for path in records.iterdir()} == {ADDRESS, "100.64.9.40", "100.64.9.42", ".pruned"}
    # Each time would cost too much.
    os.utime(records / "100.64.9.42", (1, 1))
    add(script, later)
    assert (records / "100.64.9.42").exists()
