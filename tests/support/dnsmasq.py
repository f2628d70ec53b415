"""A running dnsmasq in a network of its own, and DHCP clients on VLANs of its trunk. Requires root.

The VLANs are veth pairs with the names of VLANs: dnsmasq sees no difference, and every kernel has them.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons import dnsmasq
from gateway_core.gateways.linux.daemons.daemon import PlacedFiles
from gateway_core.gateways.linux.daemons.source import PrefixOf, Source, SourceSession
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gateway_core.records.clock import Clock
from tests.support.documents import put, valid_document
from tests.support.namespaces import inside, ip, neighbour, network_namespace
from tests.support.stack import PATIENCE, wait_for

LEASE_SCRIPT = Path(__file__).parents[2] / "packaging/dhcp-lease"
GATEWAY = IPv4Address("100.64.9.1")
#: Gives the address to the device, as udhcpc asks it to.
_CLIENTS_SCRIPT = """#!/bin/sh
case $1 in
    deconfig) ip address flush dev "$interface" ;;
    bound | renew)
        ip address replace "$ip/32" dev "$interface"
        ip route replace 100.64.9.1 dev "$interface" src "$ip"
        echo "$1 $dns" >> "$HAPPENED"
        ;;
esac
"""


class Subscriber:
    """A client of DHCP that keeps its lease."""

    def __init__(self, process: "subprocess.Popen[bytes]", happened: Path) -> None:
        self._process = process
        self._happened = happened

    def has_lease(self) -> bool:
        return self._happened.exists()

    def dns_servers(self) -> list[str]:
        """Return the DNS servers of the last reply."""
        return self._happened.read_text().rpartition("\n")[0].rpartition("\n")[2].split()[1:]

    def ask_for_renewal(self) -> None:
        """Send a request for a renewal to the server alone."""
        self._process.send_signal(signal.SIGUSR1)

    def renew(self, outcome: str = "renew") -> None:
        """Renew the lease. With `outcome` `bound`, wait until the client got another lease instead."""
        before = self._times(outcome)
        self.ask_for_renewal()
        wait_for("a renewal", lambda: self._times(outcome) > before)

    def release(self) -> None:
        self._process.send_signal(signal.SIGUSR2)

    def vanish(self) -> None:
        """Kill the client, without a message to the server."""
        self._process.kill()
        self._process.wait()

    def _times(self, outcome: str) -> int:
        return self._happened.read_text().count(outcome) if self._happened.exists() else 0


class Server:
    """dnsmasq with its VLANs."""

    def __init__(self, folder: Path, far_end: int) -> None:
        self._folder = folder
        self.far_end = far_end
        self._subscribers: list[Subscriber] = []
        self.state = folder / "state"
        self.boot_id = "1"
        self.trigger = folder / "trigger"
        self.lease_file, self._pid_file = folder / "leases", folder / "dnsmasq.pid"
        self.document = valid_document()
        self.document["demux"]["trunks"] = ["trunk0"]
        self.document["cgnat"]["source_range"] = "100.64.9.0/24"
        self.document["subscribers"] = {"dns_servers": ["192.0.2.53", "192.0.2.54"]}
        self.start()

    def source(self, clock: Clock | None = None, prefix_of: PrefixOf = lambda _: None) -> Source:
        records = self.state / "records"
        return dnsmasq.DnsmasqSource(self.lease_file, self._pid_file, records, clock or Clock("1"), prefix_of)

    def start(self) -> None:
        file = self._folder / "dnsmasq.conf"
        file.write_text(self._rendered())
        self._pid_file.unlink(missing_ok=True)
        places = {"STATE_DIRECTORY": str(self.state), "GATEWAY_TRIGGER": str(self.trigger)}
        self._process = subprocess.Popen(
            ["dnsmasq", "--keep-in-foreground", f"--conf-file={file}", "--log-facility=-"],
            env={**os.environ, **places, "BOOT_ID": self.boot_id},
        )
        wait_for("dnsmasq", lambda: self._pid_file.exists() and self._pid_file.read_bytes().strip())

    def _rendered(self) -> str:
        """Return the file of the gateway, with the places of this server."""
        daemon = dnsmasq.DnsmasqDaemon(Systemd(), PlacedFiles(self._folder), is_source=True)
        text = daemon.render(RunningConfiguration.of(self.document).sections)["dnsmasq.conf"]
        text = text.replace(f"={dnsmasq.LEASE_FILE}\n", f"={self.lease_file}\n")
        text = text.replace(f"={dnsmasq.PID_FILE}\n", f"={self._pid_file}\n")
        return text.replace(f"={dnsmasq.SCRIPT_FILE}\n", f"={LEASE_SCRIPT}\n")

    def reconfigure(self, path: str, value: object) -> None:
        """Set a value of the configuration, as a commit does."""
        self.kill()
        put(self.document, path, value)
        self.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        for subscriber in self._subscribers:
            subscriber.vanish()
        self.kill()

    def add_vlan(self, tag: int, mac: str) -> None:
        """Add a VLAN with a subscriber's device at its far end."""
        ip(
            f"link add trunk0.{tag} type veth peer name access{tag} netns {self.far_end}",
            f"link set trunk0.{tag} up",
            f"address add {GATEWAY}/32 dev trunk0.{tag}",
        )
        Path(f"/proc/sys/net/ipv4/conf/trunk0.{tag}/proxy_arp").write_text("1\n")
        self.set_mac(tag, mac)
        self.far("ip", "link", "set", f"access{tag}", "up")

    def set_mac(self, tag: int, mac: str) -> None:
        """Set the MAC address of the subscriber's device."""
        self.far("ip", "link", "set", f"access{tag}", "address", mac)

    def far(self, *command: str) -> None:
        """Run a program in the network namespace of the subscribers' devices."""
        subprocess.run(inside(self.far_end, *command), check=True)

    def sign_on(self, tag: int, *options: str) -> Subscriber:
        """Start a client, and return it once it has a lease. `options` are those of udhcpc."""
        subscriber = self.start_client(tag, *options)
        wait_for("a lease", subscriber.has_lease)
        return subscriber

    def sign_on_with(self, tag: int, hardware: str, hardware_type: int = 1) -> str:
        """Return the address of a client that then vanishes. `hardware` is hexadecimal, of any length."""
        module = ("-m", "tests.support.dhcp_clients", "one", f"access{tag}")
        command = inside(self.far_end, sys.executable, *module, str(hardware_type), hardware)
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
        return ended.stdout.strip()

    def start_client(self, tag: int, *options: str) -> Subscriber:
        script = self._folder / "udhcpc"
        script.write_text(_CLIENTS_SCRIPT)
        script.chmod(0o755)
        happened = self._folder / f"happened.{len(self._subscribers)}"
        command = ["busybox", "udhcpc", "-f", "-i", f"access{tag}", "-s", str(script), "-T", "1", "-t", "60"]
        process = subprocess.Popen(
            inside(self.far_end, *command, *options), env={**os.environ, "HAPPENED": str(happened)}
        )
        subscriber = Subscriber(process, happened)
        self._subscribers.append(subscriber)
        return subscriber


def route(session: SourceSession) -> None:
    """Route a session as the gateway does: without a route, no reply to a renewal finds the subscriber."""
    assert session.ip_address
    ip(f"route replace {session.ip_address}/32 dev {session.access_interface}")


def the_session(source: Source) -> SourceSession:
    """Wait until there is exactly one session, and return it."""
    wait_for("one session", lambda: len(source.list_sessions()) == 1)
    return source.list_sessions()[0]


@contextmanager
def running_dnsmasq(folder: Path) -> Iterator[Server]:
    """Run dnsmasq with this thread, and the processes that it starts, in dnsmasq's network namespace."""
    with network_namespace(), neighbour() as far_end:
        # As the gateway has it: no address without a session is reached.
        ip("route add unreachable 100.64.9.0/24 metric 4294967295")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")
        server = Server(folder, far_end)
        try:
            yield server
        finally:
            server.close()
