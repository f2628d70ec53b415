"""Two routers with FRR's zebra, bgpd and staticd, each in a network namespace, and a link between them."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_core.gateways.linux.daemons.frr import MARK, FrrFolders
from tests.support.frr import Frr
from tests.support.stack import descendants, wait_for

#: Arguments: the folder of FRR's packages, and that of the routers. The namespaces and FRR's user and groups
#: exist only in this mount namespace. The near router has a subscriber with a route, and one with the address
#: of a link, as from pppd.
_ROUTERS = """
set -eu
root=$1; folder=$2
mount -t tmpfs -o mode=0755 none /run
{ cat /etc/group; echo frrvty:x:985:root; echo frr:x:986:; } > /run/group
{ cat /etc/passwd; echo frr:x:986:986::/:/bin/false; } > /run/passwd
for name in group passwd; do mount --bind "/run/$name" "/etc/$name"; done
for side in near far; do ip netns add "$side"; ip -n "$side" link set lo up; done
ip -n near link add uplink type veth peer name uplink netns far
ip -n near link add access type veth peer name other
for link in uplink access other; do ip -n near link set "$link" up; done
ip -n far link set uplink up
ip -n near address add 10.255.0.1/30 dev uplink
ip -n far address add 10.255.0.2/30 dev uplink
ip -n near address add 100.64.0.1 peer 100.64.0.9/32 dev access
ip -n near route add 100.64.0.5/32 dev access proto static
ip -n near route add 100.64.4.0/24 via 10.255.0.2 proto static metric 7
ip -n near route add unreachable 100.64.128.0/17
for side in near far; do
    for daemon in mgmtd zebra bgpd staticd; do
        # FRR 8 has no mgmtd.
        [ -x "$root/usr/lib/frr/$daemon" ] || continue
        # A daemon without zebra tries again seconds later.
        [ "$daemon" != bgpd ] || until [ -S "$folder/$side/zserv.api" ]; do sleep 0.02; done
        ip netns exec "$side" "$root/usr/lib/frr/$daemon" -u root -g frrvty -N "$side" -P 0 \\
            --vty_socket "$folder/$side" -z "$folder/$side/zserv.api" -i "$folder/$side/$daemon.pid" \\
            --log stdout > "$folder/$side/$daemon.log" 2>&1 &
    done
done
wait
"""

#: The rendered file has these lines too, but for the timers: the neighbour is up soon, and stays on a busy
#: machine.
NEAR = f"""\
frr defaults traditional
hostname bng1
service integrated-vtysh-config
!
{MARK}
!
router bgp 65001
 bgp router-id 10.255.0.1
 no bgp ebgp-requires-policy
 timers bgp 5 60
 neighbor 10.255.0.2 remote-as 65002
 neighbor 10.255.0.2 description core 8
 neighbor 10.255.0.2 timers connect 1
 neighbor 10.255.0.2 advertisement-interval 0
 !
 address-family ipv4 unicast
  redistribute kernel
 exit-address-family
exit
!
"""
FAR = NEAR.replace("10.255.0.2", "peer").replace("10.255.0.1", "10.255.0.2").replace("peer", "10.255.0.1")
FAR = FAR.replace("65002", "peer").replace("65001", "65002").replace("peer", "65001").replace("bng1", "core8")


class Pair:
    """The near router is the gateway; `near` and `far` are their folders."""

    def __init__(self, frr: Frr, folder: Path, leader: int) -> None:
        self._tools = frr.tools
        self._environment = frr.environment
        self.started: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._leader = leader
        self._programs = folder / "bin"
        self._programs.mkdir()
        vtysh = self._programs / "vtysh"
        # In the namespace of the routers: vtysh saves for FRR's user and group, which a plain machine lacks.
        vtysh.write_text(f"#!/bin/sh\nexec nsenter --mount=/proc/{leader}/ns/mnt '{frr.path}/vtysh' \"$@\"\n")
        vtysh.chmod(0o755)
        self.near, self.far = self._folders("near"), self._folders("far")

    def _folders(self, side: str) -> FrrFolders:
        return FrrFolders(self._programs, self._tools, self._folder / side / "etc", self._folder / side)

    def vtysh(self, folders: FrrFolders, *arguments: str) -> str:
        """The output of FRR's own vtysh, which must succeed."""
        command = [str(folders.programs / "vtysh"), "--config_dir", str(folders.configuration)]
        command += ["--vty_socket", str(folders.sockets), *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout

    def pid(self, daemon: str, side: str = "near") -> int:
        for pid in [*descendants(self._leader), *(each.pid for each in self.started)]:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if command[0].endswith(f"/{daemon}".encode()) and side.encode() in command:
                return pid
        raise AssertionError(f"no {daemon} of {side}")

    def start(self, daemon: str, side: str = "near") -> None:
        """Another daemon of a router."""
        sockets = self._folder / side
        net = f"/proc/{self.pid('zebra', side)}/ns/net"
        command = ["nsenter", f"--mount=/proc/{self._leader}/ns/mnt", f"--net={net}"]
        command += [str(self._tools / daemon), "-u", "root", "-g", "frrvty", "-N", side]
        command += ["--vty_socket", str(sockets), "-z", str(sockets / "zserv.api")]
        command += ["-i", str(sockets / f"{daemon}.pid"), "--log", "stdout"]
        command += ["--bfdctl", str(sockets / "bfdd.sock")] if daemon == "bfdd" else ["-P", "0"]
        with (sockets / f"{daemon}.log").open("w") as log:
            started = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        self.started.append(started)
        wait_for(daemon, (sockets / f"{daemon}.vty").is_socket)

    def end(self, daemon: str) -> None:
        """Kills a daemon of the near router."""
        pid = self.pid(daemon)
        os.kill(pid, signal.SIGKILL)
        for each in self.started:
            if each.pid == pid:
                each.wait()
        wait_for("the end of a daemon", lambda: pid not in descendants(self._leader))

    @contextmanager
    def stopped(self, daemon: str, side: str = "near") -> Iterator[None]:
        """A daemon hangs."""
        pid = self.pid(daemon, side)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def ip(self, side: str, arguments: str) -> str:
        command = ["nsenter", f"--net=/proc/{self.pid('zebra', side)}/ns/net", "ip", *arguments.split()]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout

    def add_route(self, route: str, option: str = "-4") -> None:
        """To the near router, by `ip`."""
        self.ip("near", f"{option} route add {route}")

    def kernel_routes(self, side: str, option: str = "-4") -> list[dict[str, Any]]:
        """As iproute2 shows the main table of a router."""
        routes: list[dict[str, Any]] = json.loads(self.ip(side, f"-j {option} route"))
        return routes


@contextmanager
def running_pair(frr: Frr, folder: Path) -> Iterator[Pair]:
    """The routers are neighbours in about a second."""
    if os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs root, unshare and ip to have a network of its own")
    for side, text in (("near", NEAR), ("far", FAR)):
        (folder / side / "etc").mkdir(parents=True)
        # No PAM: a plain machine has no service of that name.
        (folder / side / "etc" / "vtysh.conf").write_text("username root nopassword\n")
        (folder / side / "etc" / "frr.conf").write_text(text)
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", _ROUTERS]
    pair = None
    process = subprocess.Popen([*command, "bash", str(frr.root), str(folder)], env=frr.environment)
    try:
        for daemon in ("zebra", "bgpd", "staticd"):
            for side in ("near", "far"):
                wait_for(f"{daemon} of {side}", (folder / side / f"{daemon}.vty").is_socket)
        pair = Pair(frr, folder, process.pid)
        for folders in (pair.near, pair.far):
            pair.vtysh(folders, "--inputfile", str(folders.configuration / "frr.conf"))
        yield pair
    finally:
        for each in pair.started if pair else ():
            each.kill()
            each.wait()
        process.kill()
        process.wait()
