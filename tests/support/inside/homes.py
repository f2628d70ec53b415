"""The subscribers' side of a trunk: a network namespace with clients of PPPoE and DHCP, each on a VLAN."""

import json
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

NAMESPACE = "home"
_FOLDER = Path("/run/homes")

#: Sets the leased address, as Debian's own script does. busybox sets the variables.
_LEASE = """\
#!/bin/sh
case $1 in
    deconfig) ip address flush dev "$interface" scope global ;;
    bound | renew)
        ip address replace "$ip/$mask" dev "$interface"
        [ -z "$router" ] || ip route replace default via "$router" dev "$interface" onlink
        ;;
esac
"""


class Line(NamedTuple):
    """A subscriber's VLAN. With one tag, `outer` is None."""

    inner: int
    outer: int | None = None

    @property
    def access_interface(self) -> str:
        """The name of the VLAN's device at the gateway."""
        return f"trunk0.{self.tags}"

    @property
    def device(self) -> str:
        """The name of the VLAN's device at the subscriber."""
        return f"cpe0.{self.tags}"

    @property
    def tags(self) -> str:
        return str(self.inner) if self.outer is None else f"{self.outer}.{self.inner}"

    @property
    def outer_device(self) -> str:
        return "cpe0" if self.outer is None else f"cpe0-{self.outer}"


def run(command: str) -> str:
    """Run a command without spaces in its words, and return its output. The command must succeed."""
    return subprocess.run(command.split(), check=True, stdout=subprocess.PIPE, text=True).stdout


def lasting_processes(pid: int) -> int:
    """Return the number of processes from this one down, without short ones such as hooks."""
    looks = []
    for _ in range(10):
        looks.append(_processes(pid))
        time.sleep(0.5)
    return min(looks)


def _processes(pid: int) -> int:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    # ESRCH: it ended between open and read.
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 1 + sum(_processes(int(child)) for child in children)


def at_home(*command: str) -> list[str]:
    """Return the command that runs this one in the namespace of the subscribers."""
    return ["ip", "netns", "exec", NAMESPACE, *command]


def namespace_pid() -> int:
    """Return the id of a process in the namespace of the subscribers."""
    return int(run(f"ip netns pids {NAMESPACE}").split()[0])


def make_trunk() -> None:
    """Make `trunk0` of the gateway and its other end `cpe0`, both up, with room for 1500 bytes in PPPoE."""
    _FOLDER.mkdir()
    run(f"ip netns add {NAMESPACE}")
    run(f"ip link add trunk0 mtu 1508 type veth peer name cpe0 mtu 1508 netns {NAMESPACE}")
    run("ip link set trunk0 up")
    run(f"ip -n {NAMESPACE} link set lo up")
    run(f"ip -n {NAMESPACE} link set cpe0 up")
    # Each starts a dozen programs for each subscriber, and finds nothing to do.
    for event in ("ip-pre-up", "ip-up", "ip-down", "ipv6-up", "ipv6-down"):
        Path("/etc/ppp", event).unlink()
    script = _FOLDER / "lease"
    script.write_text(_LEASE)
    script.chmod(0o755)


def add_lines(lines: Iterable[Line]) -> None:
    """Add the devices of the subscribers' VLANs, up, each with a MAC address of its own."""
    commands, outer_tags = [], set()
    for line in lines:
        if line.outer is not None and line.outer not in outer_tags:
            outer_tags.add(line.outer)
            commands.append(
                f"link add link cpe0 name {line.outer_device} up type vlan proto 802.1ad id {line.outer}"
            )
        mac = f"02:00:00:{line.outer or 0:02x}:{line.inner >> 8:02x}:{line.inner & 255:02x}"
        commands.append(
            f"link add link {line.outer_device} name {line.device} address {mac} up type vlan id {line.inner}"
        )
    batch = ["ip", "-n", NAMESPACE, "-force", "-batch", "-"]
    subprocess.run(batch, input="\n".join(commands), text=True, check=True)


def mac_of(line: Line) -> str:
    (link,) = json.loads(run(f"ip -n {NAMESPACE} -j link show {line.device}"))
    mac: str = link["address"]
    return mac


class Dialer:
    """A subscriber's pppd. `unit` is the number of its device `pppN` at the subscriber."""

    def __init__(self, line: Line, user: str, password: str, unit: int, *options: str) -> None:
        self.line, self.user, self.device = line, user, f"ppp{unit}"
        command = ["pppd", "plugin", "rp-pppoe.so", f"nic-{line.device}", "user", user, "password", password]
        command += ["noauth", "nodefaultroute", "noipdefault", "nodetach", "unit", str(unit)]
        # A subscriber's router tries until it is online. The first PADI only makes the VLAN.
        command += ["persist", "maxfail", "0", "holdoff", "2", "lcp-restart", "8", "lcp-echo-interval", "0"]
        command += ["pppoe-padi-timeout", "2", "pppoe-padi-attempts", "2"]
        with (_FOLDER / f"pppd-{line.tags}").open("ab") as log:
            self.process = subprocess.Popen(at_home(*command, *options), stdout=log, stderr=log)

    def hang_up(self) -> None:
        self.process.terminate()

    def vanish(self) -> None:
        """End pppd without a goodbye."""
        self.process.kill()
        self.process.wait()


def rent(line: Line) -> None:
    """Start a subscriber's DHCP client: busybox's udhcpc."""
    script = str(_FOLDER / "lease")
    command = ["busybox", "udhcpc", "-f", "-i", line.device, "-s", script, "-t", "100", "-T", "2"]
    with (_FOLDER / f"udhcpc-{line.tags}").open("ab") as log:
        subprocess.Popen(at_home(*command), stdout=log, stderr=log)


def addresses(device: str, family: str = "inet") -> list[str]:
    """Return the global addresses of a subscriber's device, of IPv4 or `inet6`."""
    listed: list[dict[str, Any]] = json.loads(run(f"ip -n {NAMESPACE} -j address show {device} scope global"))
    # iproute2 6.1 prints an empty entry for each that it leaves out.
    entries = [entry for link in listed for entry in link.get("addr_info", ()) if entry]
    return [entry["local"] for entry in entries if entry["family"] == family]


def reaches(device: str, address: str) -> bool:
    """Return True if a reply came to a subscriber's device: on a busy machine, one of several may not."""
    command = at_home("busybox", "ping", "-c", "3", "-W", "5", "-I", device, address)
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def lost(devices: Sequence[str], address: str, seconds: int) -> int:
    """Return how many requests got no reply, one a second from each subscriber's device. A late reply
    counts."""
    command = ["busybox", "ping", "-c", str(seconds), "-W", "60"]
    pings = [
        subprocess.Popen(at_home(*command, "-I", device, address), stdout=subprocess.PIPE, text=True)
        for device in devices
    ]
    said = [ping.communicate()[0] for ping in pings]
    replies = [int(re.findall(r"(\d+) packets received", each)[0]) for each in said]
    return sum(seconds - number for number in replies)


@contextmanager
def iperf_server(namespace: str, address: str) -> Iterator[None]:
    """Run an iperf3 server, which tests use one after the other."""
    command = ["ip", "netns", "exec", namespace, "iperf3", "--server", "--bind", address]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not run(f"ip netns exec {namespace} ss -Hltn sport = :5201"):
            if process.poll() is not None:
                raise RuntimeError(f"iperf3 ended with status {process.returncode}")
            time.sleep(0.5)
        yield
    finally:
        process.kill()
        process.wait()


def throughput(server: str, device: str, seconds: int, *, down: bool) -> float:
    """Return the bits per second that a subscriber's device receives or sends by TCP (iperf3)."""
    command = ["iperf3", "--client", server, "--bind-dev", device, "--time", str(seconds), "--json"]
    # The first seconds have what the queue takes at once.
    command += ["--omit", "2", *(["--reverse"] if down else [])]
    said = subprocess.run(at_home(*command), stdout=subprocess.PIPE, timeout=120, check=False)
    report = json.loads(said.stdout)
    if "error" in report:
        raise RuntimeError(report["error"])
    rate: float = report["end"]["sum_received"]["bits_per_second"]
    return rate
