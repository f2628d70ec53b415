"""A machine that really boots twice, with DHCP clients that say nothing in the second boot.

It has Debian's kernel and systemd, and the units of the package. `test_reboot` has more clients.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.dhcp_site import document
from tests.support.inside.installed import script_under_systemd
from tests.support.kernel import run_in_machine, seen_by
from tests.system.test_reboot import places

# A virtual machine that is emulated takes minutes to boot.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def boots(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was seen in two boots, of which the second has the disk of the first."""
    before, after = tmp_path_factory.mktemp("boot"), tmp_path_factory.mktemp("again")
    first = boot(before)
    for name in ("disk.tar", "leases.json"):
        (before / name).rename(after / name)
    return first, boot(after)


def boot(folder: Path) -> dict[str, Any]:
    (folder / "first.json").write_text(json.dumps(document_of_the_machine()))
    inside_of_it = Path("/mnt/shared")
    command = f"{shlex.quote(sys.executable)} -m tests.support.inside.reboot {inside_of_it}"
    output, errors = (inside_of_it / f"reboot.{name}" for name in ("json", "errors"))
    run_in_machine(script_under_systemd(command, output, errors), folder)
    return seen_by(folder, "reboot")


def document_of_the_machine() -> dict[str, Any]:
    made = document(1)
    made["cgnat"]["enabled"] = False
    (profile,) = made["demux"]["vlan_profiles"]
    made["demux"]["vlan_profiles"] = [
        {**profile, "vlan_range": "400-499"},
        {**profile, "name": "two_tags", "vlan_range": "1-99", "outer_vlan_range": "60"},
    ]
    return made


def test_sessions_are_up_again_after_a_reboot_of_the_machine(
    boots: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    first, again = boots
    assert first["boot_id"] != again["boot_id"]
    before, after = ({one["id"]: one for one in seen["sessions"]} for seen in boots)
    print(f"all of {len(after)} have connection {again['seconds']:.0f} s after the start of the core")
    assert places(after) == places(before)
    assert [(event["event"], event["id"], event.get("reason")) for event in again["events"]] == [
        *(("session.down", id, "nas_reboot") for id in before),
        *(("session.up", id, None) for id in after),
    ]
