"""A gateway with DHCP clients that say nothing by themselves, over its reboots.

The core, dnsmasq, the data plane and the packets are real. The gateway has a new network and another /run in
each boot; its VLANs are veth pairs, and a program stands in for systemctl.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import valid_document
from tests.support.first_frames import TRUNK_MAC
from tests.support.linux_core import CoreProcess
from tests.support.namespaces import can, inside, ip, network_namespace, unshared

REPOSITORY = Path(__file__).parents[2]
SYSTEMCTL = shutil.which("systemctl")
FIRST = 1000

needs_a_kernel_of_its_own = pytest.mark.skipif(
    SYSTEMCTL is None
    or not can(
        "ip link add v type veth peer name w",
        "ip link add i type ifb",
        "tc qdisc add dev v root tbf rate 1mbit burst 10kb limit 10kb",
        "tc qdisc add dev v ingress",
    ),
    reason="needs to be root, a kernel with veth, ifb and TBF, and systemctl",
)

#: The folders of a boot: /run is empty, /var/lib is not.
_BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs none /run
mkdir -p /run/gateway-core "$1/lib/gateway-core"
mount --bind "$1/lib" /var/lib
mount --bind "$1/systemctl" "$(readlink -f "$2")"
echo
exec sleep infinity
"""
#: It writes down how many VLANs there are when it starts the DHCP server, as gateway-dnsmasq.service does.
_SYSTEMCTL = f"""#!/bin/sh
case "$*" in
    *" start gateway-dnsmasq.service" | *" restart gateway-dnsmasq.service") ;;
    *) exit 0 ;;
esac
ip -o link | grep -c ' trunk0\\.' > @/vlans
mkdir -p /run/gateway-dnsmasq /var/lib/gateway-dnsmasq
pid=$(cat /run/gateway-dnsmasq/dnsmasq.pid 2> /dev/null)
while [ -n "$pid" ] && kill "$pid" 2> /dev/null; do sleep 0.1; done
sed 's|^dhcp-script=.*|dhcp-script={REPOSITORY}/packaging/dhcp-lease|' \\
    /var/lib/gateway-core/services/dnsmasq.conf > @/dnsmasq.conf
BOOT_ID=$(cat @/boot) STATE_DIRECTORY=/var/lib/gateway-dnsmasq GATEWAY_TRIGGER=/run/gateway-core/trigger \\
    dnsmasq --user=root --log-facility=@/dnsmasq.log --conf-file=@/dnsmasq.conf > /dev/null 2>&1
"""


def document(clients: int) -> dict[str, Any]:
    """Return a configuration with a VLAN for each client, and without FRR."""
    made = {**valid_document(), "bgp": None}
    made["interfaces"]["trunks"] = ["trunk0"]
    profile = {"name": "dhcp", "type": "dhcp", "vlan_range": f"{FIRST}-{FIRST + clients}"}
    profile |= {"outer_vlan_range": None, "overhead_profile": "ipoe_ethernet"}
    made["demux"] |= {"trunks": ["trunk0"], "vlan_profiles": [profile]}
    return made


class Clients:
    """DHCP clients in the network namespace of a process."""

    def __init__(self, pid: int, number: int) -> None:
        command = inside(pid, *_program(str(FIRST), str(number)))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        )

    def told(self) -> tuple[dict[str, str], int]:
        """Return the clients' addresses by VLAN, and the number of DHCP messages that they have sent."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        addresses, sent = json.loads(self.process.stdout.readline())
        return addresses, sent


def _kill_those_beside(holder: int) -> bool:
    """Kill the processes that share the mounts of a process. False if there are none."""
    mounts, found = Path(f"/proc/{holder}/ns/mnt").readlink(), False
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if int(entry.name) != holder and (entry / "ns/mnt").readlink() == mounts:
                os.kill(int(entry.name), signal.SIGKILL)
                found = True
    return found


def _program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.support.dhcp_clients", *arguments]


class Site:
    """The parts that outlive a reboot: the disk, the clients, and the world outside."""

    def __init__(self, folder: Path, access: int, outside: int, clients: int) -> None:
        self.folder = folder
        self.document = document(clients)
        self._access, self._outside = access, outside
        self.clients = Clients(access, clients)
        systemctl = folder / "systemctl"
        systemctl.write_text(_SYSTEMCTL.replace("@", str(folder)))
        systemctl.chmod(0o755)

    @contextmanager
    def booted(self, boot_id: str) -> Iterator[CoreProcess]:
        """Run the gateway until it loses its power at the end of the block."""
        (self.folder / "boot").write_text(boot_id)
        boot = ("sh", "-c", _BOOT, "sh", str(self.folder), str(SYSTEMCTL))
        with network_namespace(), unshared("--mount", *boot) as holder:
            trunk = f"link add trunk0 address {TRUNK_MAC} group 77 type veth"
            ip(
                f"{trunk} peer name access0 netns {self._access}",
                "link set trunk0 up",
                f"link add cgnat0 group 77 type veth peer name world netns {self._outside}",
                "address add 10.255.1.1/24 dev cgnat0",
                "link set cgnat0 up",
            )
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")
            self._run(self._access, "ip link set access0 up")
            for command in ("link set world up", "address add 10.255.1.2/24 dev world"):
                self._run(self._outside, f"ip {command}")
            self._run(self._outside, "ip route replace 100.64.0.0/10 via 10.255.1.1")
            program = ["tests.support.veth_vlans", str(self._access), "linux", "--source", "dnsmasq"]
            core = CoreProcess(self.folder, holder, self.document, [*program, "--boot-id", boot_id])
            try:
                yield core
            finally:
                core.kill()
                # A start that the core had ordered may still be under way.
                while _kill_those_beside(holder):
                    pass
                # With the network alone, they would go some time later.
                ip("link delete group 77")

    def reached(self, addresses: list[str]) -> list[str]:
        """Return the addresses that reply to a packet from outside within a second."""
        command = inside(self._outside, *_program("ping", "1"))
        given = json.dumps(addresses)
        said = subprocess.run(
            command, input=given, capture_output=True, text=True, check=True, cwd=REPOSITORY
        )
        found: list[str] = json.loads(said.stdout)
        return found

    def close(self) -> None:
        self.clients.process.kill()
        self.clients.process.communicate()

    def vlans_at_the_start_of_dhcp(self) -> int:
        return int((self.folder / "vlans").read_text())

    def _run(self, pid: int, command: str) -> None:
        subprocess.run(inside(pid, *command.split()), check=True)
