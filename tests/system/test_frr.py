"""A gateway's FRR and a neighbour's: what it says while it runs, hangs, lies or is gone, and commits."""

import json
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gateway_contract.base.errors import StepFailed
from gateway_core.commands import linux
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons import frr as frr_module
from gateway_core.gateways.linux.daemons.daemon import PlacedFiles, Rollback
from gateway_core.gateways.linux.daemons.frr import (
    MARK,
    BgpReader,
    FrrAbsent,
    FrrConfiguration,
    FrrDaemon,
    FrrDifference,
    FrrFolders,
    FrrRefused,
    FrrUnavailable,
    mark_own_bgp,
)
from gateway_core.gateways.linux.program import CommitLimits
from tests.support import frr as packages
from tests.support.frr import Frr
from tests.support.rendered import rendered
from tests.support.stack import PATIENCE, descendants, wait_for

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


NEIGHBOR = "10.255.0.2"


def limits(seconds: float) -> CommitLimits:
    return CommitLimits.of(seconds, seconds)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> packages.Frr:
    return packages.Frr(tmp_path_factory.mktemp("frr"))


@pytest.fixture
def pair(unpacked: packages.Frr) -> Iterator[Pair]:
    with TemporaryDirectory(prefix="frr-") as folder, running_pair(unpacked, Path(folder)) as pair:
        yield pair


def neighbor(pair: Pair) -> dict[str, Any]:
    summary = BgpReader(pair.near, PATIENCE).read_bgp_summary()
    found: dict[str, Any] = summary["ipv4Unicast"]["peers"][NEIGHBOR]
    return found


def established(pair: Pair) -> dict[str, Any]:
    """The neighbour, once it is up."""

    def ready() -> dict[str, Any] | None:
        found = neighbor(pair)
        return found if found["state"] == "Established" else None

    found: dict[str, Any] = wait_for("the neighbour", ready)
    return found


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_the_summary_while_frr_runs_hangs_and_is_gone(pair: Pair) -> None:
    found = established(pair)
    assert (found["remoteAs"], found["localAs"], found["desc"]) == (65002, 65001, "core 8")

    def route() -> dict[str, Any] | None:
        return next((each for each in pair.kernel_routes("far") if each["dst"] == "100.64.0.5"), None)

    told = wait_for("the subscriber's route", route)
    assert (told["gateway"], told["dev"], told["protocol"]) == ("10.255.0.1", "uplink", "bgp")
    before = saved(pair)
    with pair.stopped("bgpd"):
        with pytest.raises(FrrUnavailable, match="vtysh did not end within 1 s"):
            BgpReader(pair.near, 1).read_bgp_summary()
        with pytest.raises(FrrUnavailable, match=r"did not end within \S+ s"):
            FrrConfiguration(pair.near, limits(2)).apply(NEAR.replace("core 8", "core 9"))
        assert saved(pair) == before
    with pair.stopped("zebra"):
        assert neighbor(pair)["desc"] == "core 8"
    pair.vtysh(pair.near, "-c", "configure", "-c", "no router bgp 65001")
    assert BgpReader(pair.near, PATIENCE).read_bgp_summary() == {}
    pair.end("bgpd")
    with pytest.raises(FrrUnavailable, match="cannot read the BGP summary of FRR: bgpd: "):
        BgpReader(pair.near, PATIENCE).read_bgp_summary()


@pytest.mark.parametrize("is_installed", [False, True])
def test_an_frr_that_never_ran_is_unavailable(
    unpacked: packages.Frr, tmp_path: Path, is_installed: bool
) -> None:
    gone = FrrFolders(tmp_path, tmp_path, tmp_path, tmp_path)
    if is_installed:
        gone = FrrFolders(Path(unpacked.path), unpacked.tools, tmp_path, tmp_path)
        (tmp_path / "vtysh.conf").write_text("username root nopassword\n")
    reason = "failed to connect to any daemons" if is_installed else "No such file or directory"
    with pytest.raises(FrrUnavailable, match=reason):
        BgpReader(gone, PATIENCE).read_bgp_summary()
    with pytest.raises(FrrAbsent, match=reason):
        FrrConfiguration(gone, limits(PATIENCE)).apply(NEAR)


# FRR that hangs or lies.


def stand_in(folder: Path, script: str, name: str = "vtysh") -> FrrFolders:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(stat.S_IRWXU)
    (folder / "vtysh.conf").touch()
    return FrrFolders(folder, folder, folder, folder)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sleep 600 & echo $! $$ > {}; wait", "did not end within 2 s"),
        # A child keeps its output open.
        ("sleep 600 & echo $! > {}; echo '{{}}'", "did not end within 2 s"),
        ("echo $$ > {}; exec sleep 600 > /dev/null 2>&1", "did not end within 2 s"),
        ("echo $$ > {}; exec cat /dev/zero", "printed more than 1048576 bytes"),
    ],
)
def test_a_vtysh_that_does_not_end_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    monkeypatch.setattr(frr_module, "_MAX_SUMMARY_BYTES", 1 << 20)
    seconds = 2 if "within" in reason else PATIENCE
    with pytest.raises(FrrUnavailable, match=f"vtysh {reason}"):
        BgpReader(stand_in(tmp_path, script.format(tmp_path / "pids")), seconds).read_bgp_summary()
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        wait_for("its end", lambda pid=pid: is_gone(pid))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo rubbish", "its reply is not as expected"),
        ("exit 3", "bgpd: vtysh ended with status 3"),
        ("kill -9 $$", "bgpd: vtysh ended with status -9"),
        ("printf 'bgpd is not\\033[2J running\\n' >&2; exit 1", r"bgpd: bgpd is not\?\[2J running"),
        ("printf 'Exiting: no daemons.\\nHint: be root\\n' >&2; exit 1", r"bgpd: Exiting: no daemons$"),
        ("head -c 100000 /dev/zero; exit 1", "bgpd: "),
    ],
)
def test_a_vtysh_that_prints_rubbish_is_unavailable_and_has_nothing_of_the_core_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "s3cr3t")
    with pytest.raises(FrrUnavailable, match=reason) as refused:
        BgpReader(stand_in(tmp_path, f"env > {tmp_path}/environment; {script}"), PATIENCE).read_bgp_summary()
    assert len(str(refused.value)) < 400
    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "PWD", "SHLVL", "_", "OLDPWD"}


# A new configuration.


def test_a_new_configuration_takes_effect_and_keeps_the_neighbor(pair: Pair) -> None:
    before = established(pair)
    text = NEAR.replace("core 8", "core 9")
    configuration = FrrConfiguration(pair.near, limits(PATIENCE))
    configuration.apply(NEAR)
    assert configuration.apply(text) == FrrDifference(
        removed_commands=(f"router bgp 65001\n no neighbor {NEIGHBOR} description core 8",),
        added_commands=(f"router bgp 65001\n neighbor {NEIGHBOR} description core 9",),
    )
    found = neighbor(pair)
    assert (found["desc"], found["state"]) == ("core 9", "Established")
    assert found["connectionsDropped"] == before["connectionsDropped"]
    assert "core 9" in saved(pair)
    assert configuration.apply(text) == FrrDifference()


def saved(pair: Pair) -> str:
    """What FRR reads at its next start."""
    return (pair.near.configuration / "frr.conf").read_text()


def test_the_rendered_file_takes_effect_and_all_of_it_goes(
    pair: Pair, document: dict[str, Any], tmp_path: Path
) -> None:
    text = rendered(document)["frr.conf"]
    configuration = FrrConfiguration(pair.near, limits(PATIENCE))
    configuration.apply(text)
    assert configuration.apply(text) == FrrDifference()
    assert {"vrf cgnat", f"router bgp {document['bgp']['as_number']}"} <= {*lines_of(pair)}
    # frr-reload.py alone leaves `vrf-policy cgnat` in it.
    configuration.apply(NEAR, text)
    assert configuration.apply(NEAR) == FrrDifference()
    assert "cgnat" not in "\n".join(lines_of(pair))
    # BGP that an older version of the gateway wrote is the gateway's.
    unmarked(pair)
    commit(pair, document, tmp_path, placed=NEAR)
    assert MARK in lines_of(pair)


# What neighbours are told, and what is accepted from them.


def bgp_of(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The gateway as the near router, without CGNAT."""
    neighbors = [{"address": NEIGHBOR, "remote_as": 65002}]
    bgp = {"as_number": 65001, "router_id": "10.255.0.1", "neighbors": neighbors, **changes}
    interfaces = {**document["interfaces"], "uplinks": ["uplink"]}
    cgnat = {**document["cgnat"], "enabled": False, "handoff_interface": "uplink"}
    return {**document, "bgp": bgp, "interfaces": interfaces, "cgnat": cgnat}


def run_by(pair: Pair, document: dict[str, Any]) -> None:
    FrrConfiguration(pair.near, limits(PATIENCE)).apply(rendered(document)["frr.conf"])


def told(pair: Pair, side: str = "far") -> set[str]:
    """What a side has from the other."""
    return {each["dst"] for each in pair.kernel_routes(side) if each.get("protocol") == "bgp"}


def test_the_neighbor_is_told_of_networks_or_sessions_by_choice_and_of_no_other_route(
    pair: Pair, document: dict[str, Any]
) -> None:
    for route in (
        "default via 10.255.0.2 metric 7",
        "10.77.0.0/16 via 10.255.0.2",
        "203.0.113.7/32 via 10.255.0.2",
        "100.64.7.7/32 via 10.255.0.2",
        # As the core makes it.
        "unreachable 100.64.0.0/10 proto 140 metric 4294967295",
    ):
        pair.add_route(route)
    for route in (
        "2001:db8:5::/56 via fe80::9 dev access proto 140",
        "2001:db8:77::/48 via fe80::9 dev uplink",
        "2001:db9:5::/56 via fe80::9 dev access",
        "default via fe80::9 dev uplink",
        "unreachable 2001:db8::/32",
    ):
        pair.add_route(route, "-6")
    run_by(pair, bgp_of(document, networks=["198.51.100.0/25"]))
    networks, sessions = {"100.64.0.0/10", "198.51.100.0/25"}, {"100.64.0.9", "100.64.0.5"}
    # At first, those of the configuration before.
    wait_for("the networks, and nothing else", lambda: told(pair) == networks, 60)
    run_by(pair, bgp_of(document, announce="hosts", networks=["2001:db8::/45", "2001:db8:70::/44"]))
    wait_for("the sessions, and nothing else", lambda: told(pair) == sessions, 60)

    def prefixes() -> set[str]:
        table = json.loads(pair.vtysh(pair.near, "-c", "show bgp ipv6 unicast json"))
        return set(table.get("routes", {}))

    wait_for("the prefix, and nothing else", lambda: prefixes() == {"2001:db8:5::/56"}, 60)


def at_far(pair: Pair, *lines: str) -> None:
    lines = ("configure terminal", "router bgp 65002", *lines)
    pair.vtysh(pair.far, *(word for line in lines for word in ("-c", line)))


def test_a_packet_to_an_announced_network_without_a_session_does_not_go_back(
    pair: Pair, document: dict[str, Any]
) -> None:
    pair.add_route("default via 10.255.0.2")
    pair.vtysh(pair.near, "-c", "configure terminal", "-c", STATIC)
    networks = ["198.51.100.0/25", "2001:db8:100::/40"]
    text = rendered(bgp_of(document, networks=networks))["frr.conf"]
    FrrConfiguration(pair.near, limits(PATIENCE)).apply(text)

    def unreachable() -> set[str]:
        found = [*pair.kernel_routes("near"), *pair.kernel_routes("near", "-6")]
        return {each["dst"] for each in found if each.get("type") == "unreachable"} & {*networks}

    wait_for("the routes", lambda: unreachable() == {*networks}, 60)
    FrrConfiguration(pair.near, limits(PATIENCE)).apply(rendered(bgp_of(document))["frr.conf"], text)
    wait_for("the end of the routes", lambda: unreachable() == set(), 60)
    assert STATIC in lines_of(pair)


def announce(pair: Pair, *networks: str) -> None:
    """The far router tells its neighbour of them."""
    lines = [f"network {network}" for network in networks]
    at_far(pair, "no bgp network import-check", "address-family ipv4 unicast", *lines)


def test_a_default_route_alone_is_accepted_until_a_commit_says_more(
    pair: Pair, document: dict[str, Any]
) -> None:
    networks = {"192.0.2.0/25", "192.0.2.128/25"}
    announce(pair, "0.0.0.0/0", *networks, "198.51.100.0/24", "100.64.3.0/24")
    run_by(pair, bgp_of(document))
    wait_for("the default route alone", lambda: told(pair, "near") == {"default"}, 60)
    run_by(pair, bgp_of(document, accept=["192.0.2.0/24", "100.64.0.0/10"]))
    wait_for("the networks alone", lambda: told(pair, "near") == networks, 60)
    run_by(pair, bgp_of(document, neighbors=neighbor_of(maximum_prefixes=2), accept=["192.0.2.0/24"]))
    assert neighbor(pair)["state"] == "Established"
    # FRR counts what it has when one more arrives.
    announce(pair, "192.0.2.64/26", "192.0.2.192/26")
    wait_for("the end of the session", lambda: neighbor(pair)["state"] != "Established", 60)
    wait_for("the end of its routes", lambda: told(pair, "near") == set(), 60)


# Neighbours.


def neighbor_of(**changes: Any) -> list[dict[str, Any]]:
    return [{"address": NEIGHBOR, "remote_as": 65002, **changes}]


def test_a_neighbor_with_another_password_is_not_established_and_no_command_line_has_it(
    pair: Pair, document: dict[str, Any], tmp_path: Path
) -> None:
    seen, program = tmp_path / "seen", pair.near.programs / "vtysh"
    first, rest = program.read_text().split("\n", 1)
    program.write_text(f"{first}\ntr '\\0' ' ' < /proc/$$/cmdline >> '{seen}'\n{rest}")
    at_far(pair, "neighbor 10.255.0.1 password right")
    for password in ("right", "s3cret-2", None, "s3cret-3"):
        run_by(pair, bgp_of(document, neighbors=neighbor_of(password=password)))
        wanted = [f"neighbor {NEIGHBOR} password {password}"] if password else []
        assert [line.strip() for line in lines_of(pair) if " password " in line] == wanted
        if password == "right":
            wait_for("the neighbour with it", lambda: neighbor(pair)["state"] == "Established", 90)
        elif password == "s3cret-2":
            # FRR's timer of a connection is 120 s here: the far router tries each second.
            time.sleep(4)
            assert neighbor(pair)["state"] != "Established"
    run_by(pair, bgp_of(document, neighbors=[]))
    assert not any("s3cret" in line for line in lines_of(pair))
    assert f"--vty_socket {pair.near.sockets}" in seen.read_text()
    assert "s3cret" not in seen.read_text()


def test_a_neighbor_of_ipv6_is_told_of_the_networks_of_ipv6(pair: Pair, document: dict[str, Any]) -> None:
    for side, number in (("near", 1), ("far", 2)):
        pair.ip(side, f"address add 2001:db8:ff::{number}/64 dev uplink nodad")
    at_far(
        pair,
        "neighbor 2001:db8:ff::1 remote-as 65001",
        "neighbor 2001:db8:ff::1 timers connect 1",
        "address-family ipv6 unicast",
        "neighbor 2001:db8:ff::1 activate",
    )
    one = {"address": "2001:db8:ff::2", "remote_as": 65002}
    run_by(pair, bgp_of(document, neighbors=[one], networks=["2001:db8:100::/40"]))

    def found() -> set[str]:
        return {each["dst"] for each in pair.kernel_routes("far", "-6") if each.get("protocol") == "bgp"}

    wait_for("the network", lambda: found() == {"2001:db8:100::/40"}, 90)
    assert "100.64.0.0/10" not in told(pair)


def test_bfd_watches_the_neighbor(pair: Pair, document: dict[str, Any]) -> None:
    watched = bgp_of(document, neighbors=neighbor_of(bfd=True))
    with pytest.raises(FrrRefused, match=f"neighbor {NEIGHBOR} bfd.*bfdd does not run: set bfdd=yes"):
        run_by(pair, watched)
    for side in ("near", "far"):
        pair.start("bfdd", side)
    at_far(pair, "neighbor 10.255.0.1 bfd")
    run_by(pair, watched)

    def status() -> set[str]:
        peers = json.loads(pair.vtysh(pair.near, "-c", "show bfd peers json"))
        return {peer["status"] for peer in peers if peer["peer"] == NEIGHBOR}

    wait_for("BFD", lambda: status() == {"up"}, 90)
    with pair.stopped("bfdd", "far"):
        wait_for("the end of the session", lambda: neighbor(pair)["state"] != "Established", 60)


# What is somebody else's.

STATIC = "ip route 10.9.0.0/16 10.255.0.2"
PASSWORD = f"neighbor {NEIGHBOR} password s3cret"
#: An operator's routing, with a route in the gateway's VRF, and a name that begins as the gateway's do.
OTHERS = f"""\
{STATIC}
ip route 10.11.0.0/16 Null0 tag 7
vrf cgnat
 ip route 10.10.0.0/16 Null0
exit-vrf
interface uplink
 description to the core: 10.255.0.2
 ip ospf area 0.0.0.0
 ip ospf cost 7
exit
router ospf
 ospf router-id 10.255.0.1
 redistribute static route-map BORDER
exit
ip prefix-list BORDER seq 5 permit 10.9.0.0/16 le 24
route-map BORDER permit 10
 match ip address prefix-list BORDER
exit
route-map not-gateway-x permit 10
exit
"""


def lines_of(pair: Pair) -> list[str]:
    return pair.vtysh(pair.near, "-c", "show running-config").splitlines()


def unmarked(pair: Pair) -> None:
    pair.vtysh(pair.near, "-c", "configure terminal", "-c", f"no {MARK}")


@pytest.fixture
def foreign(pair: Pair) -> Pair:
    """A router of an operator: BGP, with a password, and a static route."""
    unmarked(pair)
    pair.vtysh(pair.near, "-c", "configure terminal", "-c", STATIC, "-c", "router bgp 65001", "-c", PASSWORD)
    return pair


@pytest.fixture
def others(pair: Pair, tmp_path: Path) -> Pair:
    """A router of an operator: OSPF, static routes, and no BGP."""
    unmarked(pair)
    pair.vtysh(pair.near, "-c", "configure terminal", "-c", "no router bgp 65001")
    pair.start("ospfd")
    file = tmp_path / "others"
    file.write_text(OTHERS)
    pair.vtysh(pair.near, "--inputfile", str(file))
    assert {*OTHERS.splitlines()} <= {*lines_of(pair)}
    return pair


def commit(pair: Pair, document: dict[str, Any], folder: Path, placed: str | None = None) -> FrrDaemon:
    """What a commit of the document does to FRR, after one that placed a text."""
    files = PlacedFiles(folder / "services")
    if placed is not None:
        files.place("frr.conf", placed)
    daemon = FrrDaemon(files, pair.near)
    apply(daemon, document)
    return daemon


def apply(daemon: FrrDaemon, document: dict[str, Any]) -> Rollback:
    with Rollback() as rollback:
        configuration = RunningConfiguration.of(document).sections
        daemon.apply(rendered(document), configuration, limits(PATIENCE), rollback)
        return rollback.pop_all()


def test_another_s_lines_stay_at_the_first_start_a_commit_and_a_rollback(
    others: Pair, document: dict[str, Any], tmp_path: Path
) -> None:
    before = lines_of(others)
    # A first commit that is put back leaves nothing in FRR.
    apply(FrrDaemon(PlacedFiles(tmp_path / "services"), others.near), document).close()
    assert lines_of(others) == before
    assert not (tmp_path / "services" / "frr.conf").exists()
    daemon = commit(others, document, tmp_path)
    assert f"router bgp {document['bgp']['as_number']}" in lines_of(others)
    assert " ip route 0.0.0.0/0 10.255.1.2 cgnat0" in lines_of(others)
    changed = {**document, "bgp": {**document["bgp"], "as_number": 65077}}
    changed["cgnat"] = {**document["cgnat"], "handoff_gateway": "10.255.1.3"}
    rollback = apply(daemon, changed)
    assert "router bgp 65077" in lines_of(others)
    assert " ip route 0.0.0.0/0 10.255.1.2 cgnat0" not in lines_of(others)
    rollback.close()
    assert f"router bgp {document['bgp']['as_number']}" in lines_of(others)
    said = {*OTHERS.splitlines()} - {"exit", "exit-vrf"}
    for found in (lines_of(others), saved(others).splitlines()):
        assert [line for line in found if line in said] == [line for line in before if line in said]
    without = {**document, "bgp": None, "cgnat": {**document["cgnat"], "enabled": False}}
    apply(daemon, without)
    assert lines_of(others) == before


def test_another_s_lines_stay_when_the_package_goes_and_while_their_daemon_does_not_run(
    others: Pair, document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lines_of(others)
    commit(others, document, tmp_path)
    monkeypatch.setattr(linux, "_FRR_FOLDERS", others.near)
    monkeypatch.setattr(linux, "SERVICES_FOLDER", tmp_path / "services")
    # As the package does it.
    assert linux.set_up(linux.SetupOptions([], [], [], "remove", ""), Path("/"), "", None)
    assert lines_of(others) == before
    assert {*OTHERS.splitlines()} <= {*saved(others).splitlines()}
    assert "gateway-core" not in saved(others)
    file = saved(others)
    others.end("ospfd")
    with pytest.raises(StepFailed, match="ospfd does not run, and FRR would forget its lines"):
        commit(others, document, tmp_path / "later")
    assert saved(others) == file
    assert f"router bgp {document['bgp']['as_number']}" not in lines_of(others)


def test_another_s_bgp_is_refused_with_what_would_go_and_stays(
    foreign: Pair, document: dict[str, Any], tmp_path: Path
) -> None:
    before = lines_of(foreign)
    with pytest.raises(StepFailed) as refused:
        commit(foreign, document, tmp_path)
    reason = refused.value.reason
    assert reason.startswith("FRR has a BGP instance that is not the gateway's, and would lose: router bgp")
    assert STATIC not in reason
    assert "`gateway-core setup --frr replace`, as root, gives BGP to the gateway" in reason
    assert "s3cret" not in reason
    assert not (tmp_path / "services" / "frr.conf").exists()
    # Also what an operator added to the BGP of an older version of the gateway.
    with pytest.raises(StepFailed, match="password"):
        commit(foreign, document, tmp_path / "older", placed=NEAR.replace(f"{MARK}\n", ""))
    # A gateway without BGP leaves it alone.
    document["cgnat"]["enabled"] = False
    commit(foreign, {**document, "bgp": None}, tmp_path / "without")
    assert lines_of(foreign) == before


def test_another_s_bgp_that_was_given_to_the_gateway_is_replaced_once_the_gateway_has_bgp(
    foreign: Pair, document: dict[str, Any], tmp_path: Path
) -> None:
    before = saved(foreign)
    copy, has_mark = mark_own_bgp(foreign.near)
    assert (copy.name, copy.read_text(), has_mark) == ("frr.conf.before-gateway", before, True)
    assert saved(foreign) == f"{before}\n{MARK}\n"
    lines, cgnat = lines_of(foreign), {**document["cgnat"], "enabled": False}
    daemon = commit(foreign, {**document, "bgp": None, "cgnat": cgnat}, tmp_path)
    assert lines_of(foreign) == lines
    apply(daemon, document)
    assert f" {PASSWORD}" not in lines_of(foreign)
    assert {STATIC, MARK} <= {*lines_of(foreign)}
    assert daemon.foreign_lines == ()


def test_a_line_that_frr_refuses_is_named_and_all_is_as_before(pair: Pair, tmp_path: Path) -> None:
    configuration = FrrConfiguration(pair.near, limits(PATIENCE))
    configuration.apply(NEAR)
    before = established(pair)

    def assert_as_before() -> None:
        """As the neighbour was then. Its first session may have ended: both ends connect at once."""
        assert configuration.apply(NEAR) == FrrDifference()
        assert "core 8" in saved(pair)
        found = neighbor(pair)
        assert (found["desc"], found["state"]) == ("core 8", "Established")
        assert found["connectionsDropped"] == before["connectionsDropped"]

    unreadable, member = f"neighbor {NEIGHBOR} colour red", "neighbor 10.255.0.3 peer-group nowhere"
    for line, reason in ((unreadable, "Unknown command"), (member, "Configure the peer-group first")):
        bad = NEAR.replace("core 8\n", f"core 9\n {line}\n")
        with pytest.raises(FrrRefused) as refused:
            configuration.apply(bad)
        number = bad.splitlines().index(f" {line}") + 1
        assert refused.value.reason == f"FRR refuses line {number} of frr.conf ({line}): {reason}"
        assert_as_before()
    with pytest.raises(FrrRefused) as refused:
        configuration.apply(NEAR.replace(f"{NEIGHBOR} description core 8", "nobody password s3cret"))
    assert " (neighbor nobody password ...): " in refused.value.reason
    assert "s3cret" not in str(refused.value)
    script = f'case $* in *"write memory"*) exit 1;; esac; exec {pair.near.programs}/vtysh "$@"'
    full = replace(pair.near, programs=stand_in(tmp_path, script).programs)
    with pytest.raises(FrrUnavailable, match="cannot save the configuration of FRR: FRR gives no reason"):
        FrrConfiguration(full, limits(PATIENCE)).apply(NEAR.replace("core 8", "core 9"))
    assert_as_before()
    pair.end("bgpd")
    (pair.near.sockets / "bgpd.pid").unlink()
    with pytest.raises(FrrRefused, match=r"\(router bgp 65001\): .* the daemon that it is for does not run"):
        configuration.apply(NEAR.replace("core 8", "core 9"))
    assert "core 8" in saved(pair)


def test_a_change_of_another_s_line_is_refused_before_it_is_made(tmp_path: Path) -> None:
    stand_in(tmp_path, f"echo '{STATIC}'")
    script = f"echo $1 >> {tmp_path}/modes; printf '\\nLines To Delete\\n===\\n{STATIC}\\n'"
    folders = stand_in(tmp_path, script, "frr-reload.py")
    with pytest.raises(FrrUnavailable, match=rf"frr-reload\.py would change {STATIC} too"):
        FrrConfiguration(folders, limits(PATIENCE)).apply("router bgp 7\n")
    assert (tmp_path / "modes").read_text() == "--test\n"


#: Says that there is a difference, always, and fails to apply what is to be restored.
_NO_WAY_BACK = """
folder=${0%/*}
for file; do :; done
case $1 in
    --test) printf '\\nLines To Add\\n============\\nrouter bgp 7\\n' ;;
    --reload) grep -q new "$file" || { echo 'Traceback: killed' >&2; exit 1; } ;;
esac
"""


def test_a_configuration_that_cannot_be_taken_back_is_told(tmp_path: Path) -> None:
    stand_in(tmp_path, "echo old")
    folders = stand_in(tmp_path, _NO_WAY_BACK, "frr-reload.py")
    with pytest.raises(StepFailed) as failed:
        FrrConfiguration(folders, limits(PATIENCE)).apply("new\nrouter bgp 7\n")
    assert failed.value.reason.startswith("FRR refuses line 2 of frr.conf (router bgp 7): it has no effect")
    assert "FRR is not as before: cannot apply frr.conf to FRR: Traceback: killed" in str(failed.value)
    assert not (tmp_path / "frr.conf").exists()


def test_a_program_that_has_no_time_left_is_not_run(tmp_path: Path) -> None:
    folders = stand_in(tmp_path, f"touch {tmp_path}/ran")
    with pytest.raises(FrrUnavailable, match="no time was left to run vtysh"):
        FrrConfiguration(folders, limits(0)).apply("router bgp 7\n")
    assert not (tmp_path / "ran").exists()
