"""The script of dnsmasq, run as dnsmasq 2.90 runs it, and its records at an upgrade."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway_api.core.gateways.linux.sources.dnsmasq_leases import LeaseRecord, record_of
from tests.support.dnsmasq import LEASE_SCRIPT
from tests.support.namespaces import can

MAC = "52:61:db:13:7f:03"
ADDRESS = "100.64.9.32"


class Script:
    """The script, as dnsmasq runs it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, *arguments: str, **environment: str) -> None:
        subprocess.run(
            [LEASE_SCRIPT, *arguments],
            check=True,
            env={"STATE_DIRECTORY": str(self._folder), **environment},
        )

    def record(self, address: str = ADDRESS) -> LeaseRecord:
        return record_of((self._folder / "records" / address).read_bytes())


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def later() -> str:
    return str(int(time.time()) + 600)


def add(script: Script, expires: str, mac: str = MAC) -> LeaseRecord:
    script.run("add", mac, ADDRESS, DNSMASQ_INTERFACE="trunk0.302", DNSMASQ_LEASE_EXPIRES=expires)
    return script.record()


def test_a_new_lease_has_a_record(script: Script, later: str) -> None:
    record = add(script, later)
    assert (record.hardware, record.interface, record.is_live) == (MAC, "trunk0.302", True)
    assert abs(record.started_at - time.time()) < 60


def test_no_two_leases_have_one_key(script: Script, later: str) -> None:
    assert add(script, later).key != add(script, later).key


def test_a_record_has_the_boot_in_which_its_key_was_made(script: Script, later: str) -> None:
    for number, boot in enumerate(("1", "2")):
        expires = f"{int(later) + number}"
        script.run(
            "old" if number else "add", MAC, ADDRESS,
            DNSMASQ_INTERFACE="trunk0.302", DNSMASQ_LEASE_EXPIRES=expires, BOOT_ID=boot,
        )  # fmt: skip
        assert script.record().boot_id == "1"


def test_a_guess_at_the_start_of_dnsmasq_changes_nothing(script: Script, later: str) -> None:
    record = add(script, later)
    script.run(
        "old", MAC, ADDRESS,
        DNSMASQ_INTERFACE="trunk0.301", DNSMASQ_LEASE_EXPIRES=later, DNSMASQ_DATA_MISSING="1",
    )  # fmt: skip
    assert script.record() == record


def test_a_renewal_on_the_same_vlan_keeps_the_key(script: Script, later: str) -> None:
    record = add(script, later)
    script.run(
        "old", MAC, ADDRESS,
        DNSMASQ_INTERFACE="trunk0.302", DNSMASQ_LEASE_EXPIRES=f"{int(later) + 9}", DNSMASQ_DATA_MISSING="1",
    )  # fmt: skip
    assert script.record() == record


def test_a_renewal_on_another_vlan_makes_a_new_key(script: Script, later: str) -> None:
    record = add(script, later)
    script.run(
        "old", MAC, ADDRESS,
        DNSMASQ_INTERFACE="trunk0.301", DNSMASQ_LEASE_EXPIRES=f"{int(later) + 9}", DNSMASQ_DATA_MISSING="1",
    )  # fmt: skip
    assert script.record().interface == "trunk0.301"
    assert script.record().key != record.key


@pytest.mark.parametrize("damage", [b"", bytes(90), b"\xff" * 90], ids=["empty", "zeros", "no text"])
def test_a_renewal_writes_a_damaged_record_anew(
    script: Script, later: str, tmp_path: Path, damage: bytes
) -> None:
    add(script, later)
    (tmp_path / "records" / ADDRESS).write_bytes(damage)
    script.run("old", MAC, ADDRESS, DNSMASQ_INTERFACE="trunk0.302", DNSMASQ_LEASE_EXPIRES=later)
    assert (script.record().hardware, script.record().interface) == (MAC, "trunk0.302")


@pytest.mark.parametrize("place", [1, 4], ids=["start", "expiry"])
def test_a_damaged_record_does_not_end_the_script_of_another_lease(
    script: Script, later: str, tmp_path: Path, place: int
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


def test_another_client_with_the_address_makes_a_new_key(script: Script, later: str) -> None:
    record = add(script, later)
    script.run(
        "old", "02:00:00:00:00:08", ADDRESS, DNSMASQ_INTERFACE="trunk0.302", DNSMASQ_LEASE_EXPIRES=later
    )
    assert script.record().key != record.key


def test_a_lease_that_is_deleted_before_its_expiry_has_ended(script: Script, later: str) -> None:
    record = add(script, later)
    script.run("del", MAC, ADDRESS, DNSMASQ_LEASE_EXPIRES=later)
    assert script.record() == replace(record, state="ended")


def test_a_lease_that_is_deleted_after_its_expiry_has_expired(script: Script, later: str) -> None:
    record = add(script, later)
    script.run("del", MAC, ADDRESS, DNSMASQ_LEASE_EXPIRES=str(int(time.time()) - 1))
    assert script.record() == replace(record, state="expired")


def test_a_lease_of_dhcpv6_has_the_mac_address_that_dnsmasq_knows(script: Script, later: str) -> None:
    script.run(
        "add", "00:01:00:01:02", "2001:db8:5::1a1",
        DNSMASQ_INTERFACE="trunk0.302", DNSMASQ_LEASE_EXPIRES=later, DNSMASQ_MAC=MAC,
    )  # fmt: skip
    assert script.record("2001:db8:5::1a1").hardware == MAC


@pytest.mark.parametrize("address", ["../../etc/passwd", "", "100.64.9.32/24", "100.64.9"])
def test_only_an_address_becomes_the_name_of_a_file(script: Script, tmp_path: Path, address: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        script.run("add", MAC, address, DNSMASQ_INTERFACE="trunk0.302")
    assert list(tmp_path.iterdir()) == []


def test_other_events_of_dnsmasq_are_ignored(script: Script, tmp_path: Path) -> None:
    script.run("tftp", "12", ADDRESS, "/file")
    assert list(tmp_path.iterdir()) == []


def test_a_record_goes_some_time_after_the_end_of_its_lease(
    script: Script, later: str, tmp_path: Path
) -> None:
    records = tmp_path / "records"
    for address in ("100.64.9.40", "100.64.9.41", "100.64.9.42"):
        script.run("add", MAC, address, DNSMASQ_INTERFACE="trunk0.302", DNSMASQ_LEASE_EXPIRES=later)
    for address in ("100.64.9.41", "100.64.9.42"):
        script.run("del", MAC, address, DNSMASQ_LEASE_EXPIRES=later)
    for name in ("100.64.9.40", "100.64.9.41", ".pruned"):
        os.utime(records / name, (1, 1))
    add(script, later)
    assert {path.name for path in records.iterdir()} == {ADDRESS, "100.64.9.40", "100.64.9.42", ".pruned"}
    # Each time would cost too much.
    os.utime(records / "100.64.9.42", (1, 1))
    add(script, later)
    assert (records / "100.64.9.42").exists()


def test_a_record_whose_lease_a_power_cut_took_goes_after_its_expiry(
    script: Script, later: str, tmp_path: Path
) -> None:
    past = str(int(time.time()) - 700)
    script.run("add", MAC, "100.64.9.40", DNSMASQ_INTERFACE="trunk0.302", DNSMASQ_LEASE_EXPIRES=past)
    for name in ("100.64.9.40", ".pruned"):
        os.utime(tmp_path / "records" / name, (1, 1))
    add(script, later)
    assert not (tmp_path / "records/100.64.9.40").exists()


def test_without_a_listener_the_script_succeeds(script: Script, later: str, tmp_path: Path) -> None:
    script.run(
        "add", MAC, ADDRESS,
        DNSMASQ_INTERFACE="a", DNSMASQ_LEASE_EXPIRES=later, GATEWAY_TRIGGER=str(tmp_path / "none"),
    )  # fmt: skip
    assert script.record().is_live


_POSTINST = Path(__file__).parents[2] / "packaging/debian/postinst"
#: The script alone, with its functions, in folders of its own.
_KEEP_RECORDS = """
set -e
mount --make-rprivate /
for folder in /run /var/lib; do mount -t tmpfs none "$folder"; done
mkdir -p /run/gateway-dnsmasq/leases /var/lib/gateway-dnsmasq
echo former > /run/gateway-dnsmasq/leases/100.64.9.32
echo former > /run/gateway-dnsmasq/leases/100.64.9.33
cd /var/lib/gateway-dnsmasq
{before}
. "$1"
keep_records_of_leases
grep -r ""
"""


@pytest.mark.skipif(not can("true"), reason="needs to be root")
@pytest.mark.parametrize(
    ("before", "of_32"),
    [
        pytest.param("", "former", id="first time"),
        pytest.param("mkdir records.new; : > records.new/100.64.9.32", "former", id="after an interruption"),
        # Its script is of this version as soon as the package is unpacked.
        pytest.param("mkdir records; echo renewed > records/100.64.9.32", "renewed", id="after a renewal"),
    ],
)
def test_an_upgrade_keeps_the_record_of_each_lease(before: str, of_32: str) -> None:
    script = _KEEP_RECORDS.format(before=before)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(_POSTINST)],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == [f"records/100.64.9.32:{of_32}", "records/100.64.9.33:former"]
