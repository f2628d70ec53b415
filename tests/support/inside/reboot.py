"""One boot of a gateway with DHCP subscribers. In SHARED, `first.json` is the first configuration, and
`disk.tar` what a disk keeps.

In the first boot, clients get leases. In the next one no client runs: their devices still have the addresses,
which `leases.json` has by access interface.
"""

import grp
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from gateway_contract.core.interface import CORE
from gateway_contract.varlink.client import Client
from gateway_core.records.clock import read_boot_id
from tests.support.inside import homes, installed
from tests.support.inside.gateway_world import CORE as UNIT
from tests.support.inside.gateway_world import PATIENCE, soon
from tests.support.inside.homes import NAMESPACE, Line, run
from tests.support.virtual_machine import SHARED, run_pieces

LINES = [*map(Line, range(400, 408)), Line(7, 60), Line(8, 60)]
_GATEWAY = "100.64.0.1"
_DISK, _LEASES = SHARED / "disk.tar", SHARED / "leases.json"


class Core:
    def __init__(self) -> None:
        path = Path("/run/gateway-core/core.sock")
        run(f"systemctl start --no-block {UNIT}")
        # A client trusts the cores of its group.
        os.setegid(grp.getgrnam("gateway-core").gr_gid)
        soon("the core's socket", path.is_socket)
        self._client = Client(path, timeout=PATIENCE)

    def sessions(self) -> list[dict[str, Any]]:
        """Return the sessions when all are up."""

        def all_up() -> Any:
            listed = json.loads(bytes(self._client.call(f"{CORE.name}.ListSessions", {})))
            found = [session for session in listed["sessions"] if session["state"] == "active"]
            return found if len(found) == len(LINES) else None

        found: list[dict[str, Any]] = soon("all sessions", all_up)
        return found

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        parameters = {"after_sequence": 0}
        for reply in self._client.stream(f"{CORE.name}.SubscribeEvents", parameters, silence=PATIENCE):
            told = json.loads(bytes(reply))
            found += told["events"]
            if found and found[-1]["sequence"] == told["newest"]:
                break
        return found


def first() -> dict[str, Any]:
    core = Core()
    for line in LINES:
        homes.rent(line)
    sessions = core.sessions()
    _LEASES.write_text(json.dumps({one["access_interface"]: one["ip_address"] for one in sessions}))
    run(f"tar --create --file {_DISK} --directory /var/lib gateway-core gateway-dnsmasq")
    return {"sessions": sessions, "boot_id": read_boot_id()}


def again() -> dict[str, Any]:
    run(f"tar --extract --file {_DISK} --directory /var/lib")
    leases = json.loads(_LEASES.read_text())
    for number, line in enumerate(LINES, 1):
        address = leases[line.access_interface]
        for command in (
            f"address add {address}/32 dev {line.device}",
            f"route add {_GATEWAY} dev {line.device} table {number}",
            f"rule add from {address} lookup {number}",
        ):
            run(f"ip -n {NAMESPACE} {command}")
    core, missing = Core(), set(leases.values())

    def all_reached() -> bool:
        missing.difference_update([address for address in missing if _is_reached(address)])
        return not missing

    soon("connection of all", all_reached)
    return {"sessions": core.sessions(), "events": core.events(), "boot_id": read_boot_id()}


def _is_reached(address: str) -> bool:
    ping = ["busybox", "ping", "-c", "1", "-W", "1", "-I", _GATEWAY, address]
    return subprocess.run(ping, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    homes.make_trunk()
    homes.add_lines(LINES)
    installed.install()
    (installed.CONFIGURATION / "first-configuration.json").write_text((SHARED / "first.json").read_text())
    run_pieces([again if _DISK.exists() else first])
