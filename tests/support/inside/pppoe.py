"""Subscribers of pppoe-server, with real pppd at both ends, each on a VLAN of its own.

The subscribers' side is a network namespace behind a veth pair.
"""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from gateway_api.core.configuration.rules import load
from gateway_api.core.gateways.linux.daemons.subscriber_addresses import SessionPrefixes
from gateway_api.core.gateways.linux.sources.pppd_log import JournalTail, PppdFailures, SystemdJournal
from gateway_api.core.gateways.linux.sources.pppoe_server import PppoeServer
from gateway_api.core.gateways.linux.sources.source import SourceEnd, SourceSession
from gateway_api.core.records.clock import Clock, boot_id
from gateway_api.wire.core.sessions import SessionType
from tests.support import dnsmasq
from tests.support.free_radius import FreeRadius, options_of
from tests.support.inside import homes
from tests.support.inside.homes import lasting_processes, run

(_PLUGIN,) = Path("/usr/lib/pppd").glob("*/rp-pppoe.so")
_PROGRAMS = Path(__file__).parents[3] / "packaging" / "pppoe"
_RECORDS, _TRIGGER = Path("/run/gateway-pppoe"), Path("/run/gateway-trigger")
_OPTIONS = Path("/run/pppoe-server-options")
_RADIUS_OPTIONS = Path("/run/pppoe-server-radius-options")
#: Seconds.
_PATIENCE = float(os.environ["PATIENCE"])

_SERVER_OPTIONS = f"""\
auth
require-chap
name bng1
noccp
+ipv6
mtu 1492
mru 1492
lcp-echo-interval 2
lcp-echo-failure 3
set GATEWAY_SESSIONS={_RECORDS}
set GATEWAY_TRIGGER={_TRIGGER}
"""


class Triggers:
    """Counts the datagrams of the hooks."""

    def __init__(self) -> None:
        self.count = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(_TRIGGER))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while self._socket.recv(1024):
            self.count += 1


class Servers:
    """A pppoe-server for each access interface, with sessions in the kernel or in user mode."""

    def __init__(self) -> None:
        self.in_kernel = True
        #: The file for those that start next.
        self.options = _OPTIONS
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, interfaces: Sequence[str]) -> None:
        for interface in interfaces:
            pool = f"100.64.{interface.rpartition('.')[2]}.2"
            command = ["pppoe-server", "-F", "-I", interface, "-C", "bng1", "-O", str(self.options)]
            command += ["-L", "100.64.0.1", "-R", pool, "-N", "16"]
            command += ["-q", str(_PROGRAMS / "pppd")]
            if not self.in_kernel:
                hide = f'mount --bind /dev/null {_PLUGIN} && exec "$@"'
                command = ["unshare", "--mount", "sh", "-c", hide, "sh", *command]
            self._running[interface] = subprocess.Popen(command, start_new_session=True)

    def interfaces(self) -> list[str]:
        return list(self._running)

    def stop(self, interface: str) -> None:
        server = self._running.pop(interface)
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def soon(what: str, ready: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + _PATIENCE
    while not (value := ready()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)
    return value


def start_journal() -> None:
    """Without the rest of systemd. The journal does not start without control groups."""
    run("mount -t cgroup2 cgroup2 /sys/fs/cgroup")
    subprocess.Popen(["/usr/lib/systemd/systemd-journald"])
    log = Path("/run/systemd/journal/dev-log")
    soon("the journal", log.is_socket)
    Path("/dev/log").symlink_to(log)


class World:
    def __init__(self) -> None:
        for module in ("ppp_async", "8021q", "veth", "pppoe"):
            run(f"modprobe {module}")
        if not Path("/dev/ppp").exists():
            run("mknod /dev/ppp c 108 0")
        _RECORDS.mkdir()
        _OPTIONS.write_text(_SERVER_OPTIONS)
        Path("/etc/ppp/chap-secrets").write_text('"alice" * "secret" *\n"Modem hangup" * "secret" *\n')
        for event in ("ip-up", "ip-down", "ipv6-up", "ipv6-down"):
            shutil.copy(_PROGRAMS / "session-hook", f"/etc/ppp/{event}.d/gateway-pppoe")
        run("ip netns add home")
        run("ip link add trunk0 type veth peer name cpe0 netns home")
        run("ip link set trunk0 up")
        run("ip -n home link set lo up")
        run("ip -n home link set cpe0 up")
        start_journal()
        self.log, self.triggers, self.servers = SystemdJournal(seconds=_PATIENCE), Triggers(), Servers()
        #: With their access interfaces.
        self._clients: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.prefixes = SessionPrefixes()
        self.source = PppoeServer(
            "pppoe-server", self.servers, self.log, _RECORDS, Clock(boot_id()), prefix_of=self.prefixes
        )

    def vlan(self, tag: int, options: Path = _OPTIONS) -> str:
        """`options` is the file of those for pppd."""
        interface = f"trunk0.{tag}"
        run(f"ip link add link trunk0 name {interface} type vlan id {tag}")
        run(f"ip link set {interface} up")
        run(f"ip -n home link add link cpe0 name cpe0.{tag} type vlan id {tag}")
        run(f"ip -n home link set cpe0.{tag} up")
        self.servers.options = options
        self.source.serve([interface], SessionType.PPPOE)
        return interface

    def dial(self, tag: int, user: str = "alice", *options: str) -> "subprocess.Popen[bytes]":
        command = ["ip", "netns", "exec", "home", "pppd", "plugin", "rp-pppoe.so", f"nic-cpe0.{tag}"]
        command += ["user", user, "password", "secret", "noauth", "nodefaultroute", "noipdefault", "nodetach"]
        command += ["+ipv6", "lcp-echo-interval", "0", "unit", str(tag), *options]
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._clients.append((f"trunk0.{tag}", client))
        return client

    def clear(self, kept: Collection[str]) -> None:
        """Ends all sessions, and removes the VLANs, but those of the interfaces that are kept."""
        for interface in self.servers.interfaces():
            if interface not in kept:
                self.servers.stop(interface)
                run(f"ip link del {interface}")
                run(f"ip -n home link del cpe0.{interface.rpartition('.')[2]}")
        for interface, client in self._clients:
            if interface not in kept:
                client.kill()
                client.wait()

    def sessions(self) -> dict[str, SourceSession]:
        """By access interface."""
        return {session.access_interface: session for session in self.source.sessions()}

    def online(self, interface: str) -> SourceSession:
        """With both of its addresses."""

        def found() -> SourceSession | None:
            session = self.sessions().get(interface)
            return session if session and session.ip_address and session.ipv6_address else None

        session: SourceSession = soon(f"the session on {interface}", found)
        return session

    def end_of(self, session: SourceSession) -> SourceEnd:
        return self.source.ends([session.key])[session.key]

    def traffic(self, session: SourceSession) -> Any:
        """The hook, or the journal, may be later than the end of pppd."""
        return to_builtins(soon("the traffic", lambda: self.end_of(session).traffic))

    def ended(self, session: SourceSession) -> dict[str, Any]:
        """What the source says after the end."""
        since = time.monotonic()
        soon(f"the end of {session.key}", lambda: session.access_interface not in self.sessions())
        pid = _pid(session)
        soon(f"the end of pppd {pid}", lambda: not Path(f"/proc/{pid}").exists())
        return {
            "seconds": round(time.monotonic() - since, 1),
            "reason": self.end_of(session).reason,
            "log": self.log.lines({pid: session.started_at - _PATIENCE})[pid],
        }


def _pid(session: SourceSession) -> int:
    return int(session.key.split("-")[1])


def _mac(tag: int) -> str:
    shown = subprocess.run(
        ["ip", "-n", "home", "-j", "link", "show", f"cpe0.{tag}"], capture_output=True, check=True
    )
    mac: str = json.loads(shown.stdout)[0]["address"]
    return mac


def refused(world: World) -> dict[str, Any]:
    """A subscriber who knows no password, and one who does."""
    world.vlan(108)
    failures = PppdFailures("pppoe-server", JournalTail(time.time() - 1, seconds=_PATIENCE))
    client = world.dial(108, 'mal"lory')
    found = soon("a failure", failures.read)
    client.wait()
    world.dial(108)
    world.online("trunk0.108")
    more = failures.read()
    return {"mac": _mac(108), "failures": to_builtins(found), "more": to_builtins(more), "now": time.time()}


def listed(world: World) -> dict[str, Any]:
    """A session while it is up, and after the subscriber's pppd says goodbye."""
    interface = world.vlan(100)
    before = int(time.time())
    client = world.dial(100)
    session = world.online(interface)
    pid = _pid(session)
    link = subprocess.run(["ip", "-j", "addr", "show", session.interface], capture_output=True, check=True)
    seen = {
        "session": to_builtins(session),
        "same": world.sessions()[interface] is session,
        "mac": _mac(100),
        "pid_file": int(Path(f"/run/{session.interface}.pid").read_text()) == pid,
        "stat": Path(f"/proc/{pid}/stat").read_text(),
        "processes": lasting_processes(pid),
        "cmdline": Path(f"/proc/{pid}/cmdline").read_text(),
        "records": {path.name: path.read_text() for path in _RECORDS.iterdir()},
        "link": json.loads(link.stdout)[0],
        "between": [before, int(time.time())],
        "triggers": soon("a datagram", lambda: world.triggers.count),
        "reason_while_up": world.end_of(session).reason,
    }
    address = f"{session.ipv6_address}%{session.interface}"
    subprocess.run(["busybox", "ping6", "-c", "3", address], stdout=subprocess.DEVNULL, check=True)
    client.send_signal(signal.SIGTERM)
    return {**seen, "end": world.ended(session), "traffic": world.traffic(session)}


def terminated(world: World) -> dict[str, Any]:
    interface = world.vlan(101)
    world.dial(101, "Modem hangup")
    session = world.online(interface)
    world.source.terminate(session)
    return {
        "username": session.username,
        "end": world.ended(session),
        "traffic": world.traffic(session),
    }


def terminated_twice(world: World) -> dict[str, Any]:
    """The subscriber's pppd does not run, and cannot reply to the goodbye."""
    interface = world.vlan(102)
    client = world.dial(102)
    session = world.online(interface)
    client.send_signal(signal.SIGSTOP)
    world.source.terminate(session)
    world.source.terminate(session)
    return {"end": world.ended(session)}


def killed(world: World) -> dict[str, Any]:
    """Then the subscriber dials again."""
    interface = world.vlan(103)
    world.dial(103)
    session = world.online(interface)
    os.kill(_pid(session), signal.SIGKILL)
    end = world.ended(session)
    left = [path.name for path in _RECORDS.iterdir() if path.name.startswith(f"{_pid(session)}-")]
    world.dial(103)
    return {"end": end, "left": left, "key": session.key, "next": world.online(interface).key}


def cut(world: World) -> dict[str, Any]:
    interface = world.vlan(104)
    world.dial(104)
    session = world.online(interface)
    run("ip -n home link set cpe0.104 down")
    return {"end": world.ended(session)}


def client_killed(world: World) -> dict[str, Any]:
    """The subscriber's pppd ends without a goodbye."""
    interface = world.vlan(105)
    client = world.dial(105)
    session = world.online(interface)
    client.kill()
    return {"end": world.ended(session)}


def padt(world: World) -> dict[str, Any]:
    """The subscriber ends the PPPoE session, and not PPP (RFC 2516 section 5.5)."""
    interface = world.vlan(107)
    client = world.dial(107)
    session = world.online(interface)
    client.kill()
    client.wait()
    command = Path(f"/proc/{_pid(session)}/cmdline").read_text()
    (number,) = map(int, re.findall(rf"[ \0]([0-9]+):{_mac(107)}", command, re.IGNORECASE))
    to = Path(f"/sys/class/net/{interface}/address").read_text()
    head = bytes.fromhex(f"{to}{_mac(107)}".replace(":", ""))
    frame = head + struct.pack("!HBBHH", 0x8863, 0x11, 0xA7, number, 0)
    send = (
        "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); "
        f"s.bind(('cpe0.107', 0)); s.send({frame!r})"
    )
    subprocess.run(["ip", "netns", "exec", "home", sys.executable, "-c", send], check=True)
    return {"end": world.ended(session)}


def resized(world: World) -> dict[str, Any]:
    """The VLAN gets another MTU."""
    interface = world.vlan(109)
    world.dial(109)
    session = world.online(interface)
    run(f"ip link set {interface} mtu 1498")
    return {"end": world.ended(session)}


def released(world: World) -> dict[str, Any]:
    interface = world.vlan(106)
    world.dial(106)
    session = world.online(interface)
    world.source.release(interface)
    return {"end": world.ended(session)}


def wide(world: World) -> dict[str, Any]:
    """A client that asks for packets of 1500 bytes (RFC 4638), on a trunk that has room for them, and another
    one."""
    run("ip link set trunk0 mtu 1508")
    run("ip -n home link set cpe0 mtu 1508")
    interfaces = [world.vlan(tag) for tag in (110, 111)]
    # pppd asks where its device has room.
    world.dial(110)
    world.dial(111, "alice", "mtu", "1492", "mru", "1492")
    sessions = [world.online(interface) for interface in interfaces]
    mtu = [int(Path(f"/sys/class/net/{session.interface}/mtu").read_text()) for session in sessions]
    # With the headers of IPv4 and ICMP, 1500 bytes.
    ping = ["busybox", "ping", "-c", "3", "-W", "5", "-s", "1472", "-I", "ppp110", "100.64.0.1"]
    subprocess.run(homes.at_home(*ping), stdout=subprocess.DEVNULL, check=True)
    run("ip link set trunk0 mtu 1500")
    run("ip -n home link set cpe0 mtu 1500")
    return {"mtu": mtu}


def ipv6(world: World) -> dict[str, Any]:
    """The subscriber's device learns its prefix from dnsmasq, and a host outside reaches it."""
    run("ip netns add outside")
    run("ip link add uplink0 type veth peer name near netns outside")
    run("ip link set uplink0 up")
    run("ip address add 2001:db8:ffff::1/64 dev uplink0 nodad")
    run("ip -n outside link set near up")
    run("ip -n outside address add 2001:db8:ffff::2/64 dev near nodad")
    run("ip -n outside route add 2001:db8::/40 via 2001:db8:ffff::1")
    Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1\n")
    folder = Path("/run/dnsmasq")
    folder.mkdir()
    server = dnsmasq.Server(folder, os.getpid())
    server.reconfigure("subscribers.ipv6_range", "2001:db8::/40")
    put_back = world.prefixes.configure(load(server.document))
    # Its addresses are in the range of that server.
    interface = world.vlan(9)
    world.dial(9)
    session = world.online(interface)
    dnsmasq.provide(session)

    ping = ["ip", "netns", "exec", "outside", "busybox", "ping6", "-c", "1", "-W", "5"]
    address = soon("an IPv6 address", lambda: [one for one in homes.addresses("ppp9") if ":" in one])[0]
    soon(
        "a reply to the outside",
        lambda: subprocess.run([*ping, address], stdout=subprocess.DEVNULL, check=False).returncode == 0,
    )
    put_back()
    server.close()
    return {"prefix": session.ipv6_prefix, "address": address}


class RadiusAway:
    """Two RADIUS servers that go away and come back, and the sessions of their subscribers. The other cases
    run between: pppd sends an update of accounting once a minute, not more often."""

    def __init__(self) -> None:
        self._servers: list[FreeRadius] = []
        self._sessions: list[SourceSession] = []

    def radius_goes(self, world: World) -> dict[str, Any]:
        """The first server, then the second."""
        self._servers = [
            FreeRadius(IPv4Address(f"127.0.0.{number}"), Path(f"/run/radius{number}")) for number in (1, 2)
        ]
        _RADIUS_OPTIONS.write_text(_SERVER_OPTIONS + options_of(*self._servers, timeout=1, max_try=2))
        soon("the servers", lambda: all(server.is_ready() for server in self._servers))
        for number, user in enumerate(("bob", "carol")):
            self._sessions.append(self._sign_on(world, 120 + number, user))
            self._servers[number].kill()
        return {"users": [session.username for session in self._sessions], "starts": self._starts()}

    def radius_is_away(self, world: World) -> dict[str, Any]:
        """Then the second server is back."""
        soon("updates without a reply", lambda: all(_has_failed(world, each) for each in self._sessions))
        sessions = self._listed(world)
        self._servers[1].start()
        return sessions

    def radius_returns(self, world: World) -> dict[str, Any]:
        """The second server has an update of a session that began by the first. Then the first is back."""
        first, second = self._servers
        soon("an update at the second server", lambda: second.accounted("Interim-Update", "bob"))
        first.start()
        soon("the first server", first.is_ready)
        self._sign_on(world, 122, "dave")
        return {"starts": self._starts(), **self._listed(world)}

    def interfaces(self) -> list[str]:
        """Of the sessions."""
        return [session.access_interface for session in self._sessions]

    def _listed(self, world: World) -> dict[str, list[str]]:
        """The keys of the sessions when they began, and now."""
        sessions = world.sessions()
        return {
            "before": [session.key for session in self._sessions],
            "after": [sessions[interface].key for interface in self.interfaces()],
        }

    def _sign_on(self, world: World, tag: int, user: str) -> SourceSession:
        interface = world.vlan(tag, _RADIUS_OPTIONS)
        # The client gives up a gateway that is silent for 15 s.
        world.dial(tag, user, "lcp-echo-interval", "5", "lcp-echo-failure", "3")
        session = world.online(interface)
        soon(f"the start of {user}", lambda: any(self._starts()[user]))
        return session

    def _starts(self) -> dict[str, list[int]]:
        """How many sessions of each user each server was told of."""
        return {
            user: [server.accounted("Start", user) for server in self._servers]
            for user in ("bob", "carol", "dave")
        }


def _has_failed(world: World, session: SourceSession) -> bool:
    """True if an update of its accounting had no reply."""
    pid = _pid(session)
    lines = world.log.lines({pid: session.started_at - _PATIENCE})[pid]
    return f"Interim accounting failed for {session.username}" in lines


def main() -> None:
    world, radius = World(), RadiusAway()
    cases = (
        radius.radius_goes,
        listed,
        terminated,
        terminated_twice,
        killed,
        cut,
        client_killed,
        padt,
        resized,
        released,
        refused,
        wide,
        ipv6,
        radius.radius_is_away,
    )
    seen: dict[str, Any] = {"kernel": see(world, cases)}
    world.clear(kept=radius.interfaces())
    world.servers.in_kernel = False
    seen["user"] = see(world, (listed, killed, padt, refused))
    seen["kernel"] |= see(world, [radius.radius_returns])
    print(json.dumps(seen))


def see(world: World, cases: Sequence[Callable[[World], dict[str, Any]]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for case in cases:
        try:
            seen[case.__name__] = case(world)
        except Exception as error:  # noqa: BLE001 - the other cases are worth a look
            seen[case.__name__] = {"error": traceback.format_exception(error)}
    return seen


if __name__ == "__main__":
    main()
