"""The network behind the gateway: its own FRR, from Debian's packages; a BGP neighbour; and an appliance for
CGNAT. The last two are network namespaces."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.inside.homes import run

#: The addresses that subscribers reach through each of them.
BEHIND_THE_NEIGHBOUR = "192.0.2.1"
BEHIND_THE_APPLIANCE = "198.51.100.1"
#: The networks of the subscribers, and the uplink's.
SUBSCRIBERS, _UPLINK = "2001:db8::/40", "2001:db8:ffff::"

_NEIGHBOUR = Path("/run/frr-far")
_NEIGHBOUR_CONFIGURATION = f"""\
frr defaults traditional
hostname core1
log stdout
router bgp 64513
 bgp router-id 10.255.0.2
 no bgp ebgp-requires-policy
 neighbor 10.255.0.1 remote-as 64512
 neighbor 10.255.0.1 timers connect 1
 address-family ipv4 unicast
  network {BEHIND_THE_NEIGHBOUR}/32
 exit-address-family
exit
"""


def install_frr(packages: Path) -> None:
    """Install Debian's packages of FRR from a folder, as their own installation does."""
    copy = f"tar -C {packages} -cf - . | tar -C / -xf - --keep-directory-symlink"
    subprocess.run(["bash", "-o", "pipefail", "-c", copy], check=True)
    run("groupadd --system --force frrvty")
    run("groupadd --system --force frr")
    if subprocess.run(
        ["id", "frr"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode:
        run("useradd --system --gid frr --groups frrvty --no-create-home frr")
    run("systemd-tmpfiles --create frr.conf")
    daemons = Path("/etc/frr/daemons")
    daemons.write_text(daemons.read_text().replace("bgpd=no", "bgpd=yes"))
    run("chown --recursive frr:frr /etc/frr")
    run("chmod --recursive o-rwx /etc/frr")


def make_networks() -> None:
    """Make `uplink0` to the neighbour and `cgnat0` to the appliance."""
    for namespace, device, network, behind in (
        ("far", "uplink0", "10.255.0", BEHIND_THE_NEIGHBOUR),
        ("appliance", "cgnat0", "10.255.1", BEHIND_THE_APPLIANCE),
    ):
        run(f"ip netns add {namespace}")
        run(f"ip link add {device} type veth peer name near netns {namespace}")
        run(f"ip address add {network}.1/30 dev {device}")
        run(f"ip link set {device} up")
        for command in ("link set lo up", "link set near up", f"address add {network}.2/30 dev near"):
            run(f"ip -n {namespace} {command}")
        run(f"ip -n {namespace} address add {behind}/32 dev lo")
    run("ip -n appliance route add 100.64.0.0/10 via 10.255.1.1")
    run(f"ip address add {_UPLINK}1/64 dev uplink0 nodad")
    run(f"ip -n far address add {_UPLINK}2/64 dev near nodad")
    run(f"ip -n far route add {SUBSCRIBERS} via {_UPLINK}1")


def start_neighbour() -> None:
    _NEIGHBOUR.mkdir()
    run(f"chown frr:frr {_NEIGHBOUR}")
    configuration = _NEIGHBOUR / "bgpd.conf"
    configuration.write_text(_NEIGHBOUR_CONFIGURATION)
    for daemon, more in (("zebra", []), ("bgpd", ["-f", str(configuration)])):
        command = ["ip", "netns", "exec", "far", f"/usr/lib/frr/{daemon}", "-N", "far", "-P", "0"]
        command += ["--vty_socket", str(_NEIGHBOUR), "-z", str(_NEIGHBOUR / "zserv.api")]
        command += ["-i", str(_NEIGHBOUR / f"{daemon}.pid"), *more]
        with (_NEIGHBOUR / f"{daemon}.log").open("ab") as log:
            subprocess.Popen(command, stdout=log, stderr=log)


def routes_of_the_neighbour() -> set[str]:
    """Return the networks that the neighbour has from the gateway, as its kernel has them."""
    routes: list[dict[str, Any]] = json.loads(run("ip -n far -j route show proto bgp"))
    return {route["dst"] for route in routes}


def is_reached_from_the_neighbour(address: str) -> bool:
    """Return True if an IPv6 address replies."""
    ping = f"ip netns exec far busybox ping6 -c 1 -W 5 {address}"
    return subprocess.run(ping.split(), stdout=subprocess.DEVNULL, check=False).returncode == 0


def udp_at_the_appliance() -> int:
    """Return how many datagrams came to a port without a service (/proc/net/snmp)."""
    shown = run("ip netns exec appliance nstat -asz --json UdpNoPorts")
    return int(json.loads(shown)["kernel"]["UdpNoPorts"])
