"""A gateway with a PPPoE and a DHCP subscriber while other packages replace its packages, and back.

In SHARED, `first.json` is the first configuration, `old` has the package that is installed first, and
`upgrade` and `downgrade` are scripts. The API does not run: in the emulator, its start takes too long.
"""

import grp
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway_contract.core.interface import CORE
from gateway_contract.varlink.client import Client, Unreachable
from tests.support.inside import homes, installed
from tests.support.inside.gateway_world import PASSWORD, PATIENCE, follow_journal, soon
from tests.support.inside.homes import Line, run
from tests.support.virtual_machine import SHARED, run_pieces

PPPOE, LATER, DHCP = Line(100), Line(101), Line(400)
_GATEWAY = "100.64.0.1"
#: In the emulator, a start takes longer than on a gateway.
_DROP_IN = "[Service]\nTimeoutStartSec=600\nTimeoutStopSec=300\nWatchdogSec=0\n"


def before() -> dict[str, Any]:
    """Install the old package, and let both subscribers sign on."""
    follow_journal()
    homes.make_trunk()
    homes.add_lines((PPPOE, LATER, DHCP))
    drop_in = Path("/etc/systemd/system/gateway-core-linux.service.d/tests.conf")
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text(_DROP_IN)
    # The packages start no API.
    policy = Path("/usr/sbin/policy-rc.d")
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    # The index of man pages takes minutes.
    Path("/var/lib/man-db/auto-update").unlink(missing_ok=True)
    run("systemctl daemon-reload")
    run("systemctl start dbus polkit")
    run(f"dpkg --install {next((SHARED / 'old').iterdir())}")
    (installed.CONFIGURATION / "first-configuration.json").write_text((SHARED / "first.json").read_text())
    run("systemctl enable --now gateway-core-linux")
    os.setegid(grp.getgrnam("gateway-core").gr_gid)
    homes.rent(DHCP)
    homes.Dialer(PPPOE, "alice", PASSWORD, 0)
    return look(2)


def upgraded() -> dict[str, Any]:
    return replaced("upgrade", 2)


def downgraded() -> dict[str, Any]:
    return replaced("downgrade", 3)


def replaced(script: str, number: int) -> dict[str, Any]:
    """Run a script while the first two of `number` subscribers ping the gateway."""
    with pings() as lost:
        os.setegid(0)
        said = subprocess.run(
            ["bash", "-eux", str(SHARED / script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, cwd=SHARED,
        )  # fmt: skip
        os.setegid(grp.getgrnam("gateway-core").gr_gid)
        found = look(number)
    return {**found, "status": said.returncode, "said": said.stdout[-3000:], "lost": lost}


def later() -> dict[str, Any]:
    """Let another subscriber sign on."""
    homes.Dialer(LATER, "bob", PASSWORD, 1)
    return look(3)


def look(number: int) -> dict[str, Any]:
    """Return this many sessions once they are up, and the processes of the sessions."""

    def all_up() -> Any:
        client = Client(Path("/run/gateway-core/core.sock"), timeout=PATIENCE)
        try:
            listed = json.loads(bytes(client.call(f"{CORE.name}.ListSessions", {})))["sessions"]
        except Unreachable:
            return None
        finally:
            client.close()
        return listed if [one["state"] for one in listed] == ["active"] * number else None

    fields = ("id", "type", "username", "ip_address", "started_at")
    sessions = [{name: one[name] for name in fields} for one in soon("the sessions", all_up, 2)]
    programs = {name: pids(name) for name in ("pppoe-server", "dnsmasq")}
    return {"sessions": sessions, "programs": programs, "version": run("dpkg-query --show gateway-api")}


def pids(name: str) -> list[int]:
    found = subprocess.run(["pgrep", "--exact", name], stdout=subprocess.PIPE, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


@contextmanager
def pings() -> Iterator[dict[str, int]]:
    """Ping the gateway from both subscribers, once a second, and count the requests without a reply."""
    lost: dict[str, int] = {}
    command = ["busybox", "ping", "-W", "60"]
    started = {
        device: subprocess.Popen(
            homes.at_home(*command, "-I", device, _GATEWAY), stdout=subprocess.PIPE, text=True
        )
        for device in ("ppp0", DHCP.device)
    }
    yield lost
    for device, process in started.items():
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
        sent, received = map(int, re.findall(r"(\d+) packets", said))
        # The last one may be on its way.
        lost[device] = max(0, sent - received - 1)


if __name__ == "__main__":
    run_pieces([before, upgraded, later, downgraded])
