"""`gateway-core linux` on a machine of its own: its network, its /run and its /var/lib.

accel-ppp is the stand-in of tests.support.accel. The devices of its sessions are veths: a smaller kernel than
Debian's has neither ppp nor VLANs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway_contract.core.interface import CORE
from gateway_contract.varlink.client import Client
from gateway_core.gateways.linux.daemons import accel_ppp
from tests.support.accel import Peer
from tests.support.documents import valid_document
from tests.support.namespaces import ip, ip_batch, network_namespace, unshared
from tests.support.running_accel import Accel
from tests.support.stack import PATIENCE, listens, wait_for

#: What every session arrived on: a veth with the name of a VLAN.
VLAN = "trunk0.1000"
_OWN_FOLDERS = """
set -e
mount --make-rprivate /
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mkdir /run/gateway-core /var/lib/gateway-core
echo
exec sleep infinity
"""


class CoreProcess:
    """The core as a process, in the mount namespace of another one. The folders outlive it. `program` are the
    words in front of its options."""

    def __init__(self, folder: Path, holder: int, document: Any, program: Sequence[str]) -> None:
        #: The root of the file system that the core sees.
        self.root = root_of(holder)
        self.folder = folder
        self._socket = folder / "core.sock"
        factory = folder / "factory.json"
        factory.write_text(json.dumps(document))
        self._command = [
            *("nsenter", f"--mount=/proc/{holder}/ns/mnt", sys.executable, "-m", *program),
            *("--socket", str(self._socket), "--factory", str(factory)),
            *("--configuration", str(folder / "configuration")),
        ]
        self._log = folder / "log"
        self.client = Client(self._socket, timeout=PATIENCE)
        self.start()

    def start(self) -> None:
        self._socket.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            # In another mount namespace, the working directory is another one.
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        wait_for("the core's socket", self._is_up)

    def kill(self) -> None:
        """Kill the core with SIGKILL."""
        self.process.kill()
        self.process.wait()
        self.client.close()

    def call(self, method: str, **parameters: Any) -> Any:
        return json.loads(bytes(self.client.call(f"{CORE.name}.{method}", parameters)))

    def sessions(self) -> dict[int, dict[str, Any]]:
        """Return the sessions by id."""
        return {session["id"]: session for session in self.call("ListSessions")["sessions"]}

    def states(self) -> dict[int, str]:
        return {id: session["state"] for id, session in self.sessions().items()}

    def repairs(self) -> dict[str, int]:
        """Return the numbers of repairs, without those that are zero."""
        counts = self.call("GetStatistics")["repairs"]
        return {each["kind"]: each["repairs"] for each in counts if each["repairs"]}

    def events(self) -> list[dict[str, Any]]:
        """Return all events of this life of the core, of which there must be one."""
        found: list[dict[str, Any]] = []
        for reply in self.follow():
            found += reply["events"]
            if found and found[-1]["sequence"] == reply["newest"]:
                break
        return found

    def follow(self) -> Iterator[dict[str, Any]]:
        """Yield the replies with the events of this life, from the first on."""
        stream = self.client.stream(f"{CORE.name}.SubscribeEvents", {"after_sequence": 0}, silence=PATIENCE)
        return (json.loads(bytes(reply)) for reply in stream)

    def told(self) -> list[tuple[str, int]]:
        return [(event["event"].removeprefix("session."), event["id"]) for event in self.events()]

    def log(self) -> str:
        return self._log.read_text()

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log()
        return listens(self._socket)


class LinuxCore(CoreProcess):
    """A core of a Linux gateway with its accel-ppp."""

    def __init__(self, folder: Path, holder: int, accel: Accel) -> None:
        self.accel = accel
        # Without FRR.
        document = {**valid_document(), "bgp": None}
        super().__init__(folder, holder, document, ["gateway_core", "linux", "--source", "accel-ppp"])


@contextmanager
def running_linux_core(folder: Path) -> Iterator[LinuxCore]:
    """Run the core, with the calling thread in the network namespace of its machine for the block."""
    with network_namespace(), unshared("--mount", "sh", "-c", _OWN_FOLDERS) as holder:
        ip_batch(
            [
                "address add 100.64.0.1/32 dev lo",
                *(
                    line
                    for name in ("trunk0", "trunk1", "uplink0", "cgnat0", VLAN)
                    for line in (f"link add {name} type veth peer name {far(name)}", f"link set {name} up")
                ),
                f"link set {far('cgnat0')} up",
                "address add 10.255.1.1/24 dev cgnat0",
                f"link set {far(VLAN)} up",
            ]
        )
        password = root_of(holder) / accel_ppp.PASSWORD_FILE.relative_to("/")
        accel = Accel(accel_ppp.COMMAND_LINE.port, password)
        core = None
        try:
            core = LinuxCore(folder, holder, accel)
            yield core
        finally:
            if core is not None:
                core.kill()
            accel.kill()


def root_of(pid: int) -> Path:
    """Return the root folder of a process's mount namespace."""
    return Path(f"/proc/{pid}/root")


def far(name: str) -> str:
    """Return the name of a veth's other end."""
    return f"far-{name}"


def subscriber(number: int, **more: Any) -> Peer:
    """Return a PPPoE session, numbered from 0."""
    return Peer(
        f"{number:016x}", username=f"user{number}", ifname=f"ppp{number}", inbound=VLAN,
        calling=f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}",
        ip=f"100.64.{1 + (number >> 8)}.{number & 255}", **more,
    )  # fmt: skip


def add_devices(peers: Sequence[Peer]) -> None:
    """Add the devices of these sessions, with the host routes that the kernel has for ppp."""
    ip_batch([f"link add {peer.ifname} type veth peer name {far(peer.ifname)}" for peer in peers])
    ip_batch([f"link set {name} up" for peer in peers for name in (peer.ifname, far(peer.ifname))])
    ip_batch([f"route add {peer.ip}/32 dev {peer.ifname} proto kernel src 100.64.0.1" for peer in peers])


def come(core: LinuxCore, *peers: Peer) -> None:
    """Have subscribers sign on."""
    add_devices(peers)
    core.accel.up(*peers)


def go(core: LinuxCore, *peers: Peer) -> None:
    """Have subscribers hang up: the device goes last."""
    core.accel.down(*(peer.sid for peer in peers))
    ip(*(f"link del {peer.ifname}" for peer in peers))
