"""A machine that really boots twice, with DHCP clients that say nothing in the second boot.

It has Debian's kernel and systemd, and the units of the package. `test_reboot` has more clients.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.dhcp_site import document
from tests.support.inside.installed import prepare
from tests.support.virtual_machine import Report, run_in_machine
from tests.system.test_reboot import places

# The machine is emulated.
pytestmark = pytest.mark.timeout(3000)


def boot(folder: Path) -> Report:
    prepare(folder)
    (folder / "first.json").write_text(json.dumps(document_of_the_machine()))
    return run_in_machine("tests.support.inside.reboot", folder, timeout=1200)


def document_of_the_machine() -> dict[str, Any]:
    made = document(1)
    made["cgnat"]["enabled"] = False
    (profile,) = made["demux"]["vlan_profiles"]
    made["demux"]["vlan_profiles"] = [
        {**profile, "vlan_range": "400-499"},
        {**profile, "name": "two_tags", "vlan_range": "1-99", "outer_vlan_range": "60"},
    ]
    return made


def test_sessions_are_up_again_after_a_reboot_of_the_machine(tmp_path: Path) -> None:
    before, after = tmp_path / "boot", tmp_path / "again"
    before.mkdir()
    after.mkdir()
    first = boot(before).of("first")
    for name in ("disk.tar", "leases.json"):
        (before / name).rename(after / name)
    again = boot(after).of("again")
    assert first["boot_id"] != again["boot_id"]
    ended, begun = ({one["id"]: one for one in seen["sessions"]} for seen in (first, again))
    assert places(begun) == places(ended)
    assert [(event["event"], event["id"], event.get("reason")) for event in again["events"]] == [
        *(("session.down", id, "nas_reboot") for id in ended),
        *(("session.up", id, None) for id in begun),
    ]
