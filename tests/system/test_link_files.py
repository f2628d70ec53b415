"""What udev and systemd-networkd do with links by the files of the package: the daemons themselves, in a
network of their own."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_core.gateways.linux.kernel.links import SUBSCRIBER_GROUP
from tests.support.debian import unpacked
from tests.support.namespaces import can, ip, network_namespace, unshared
from tests.support.stack import wait_for

_NETWORKD = Path("/usr/lib/systemd/systemd-networkd")

pytestmark = pytest.mark.skipif(
    not can("ip link add v type veth peer name w") or not _NETWORKD.exists(),
    reason="needs to be root, a kernel with veth, and systemd-networkd",
)

_PACKAGING = Path(__file__).parents[2] / "packaging"
#: Arguments: the root of Debian's udev, and the folder of the files. An operator has a file that matches all
#: links.
_DAEMONS = f"""
set -e
mount --make-rprivate /
mount -t sysfs none /sys
mount -t tmpfs none /run
mkdir -p /run/udev/rules.d /run/systemd/network /run/systemd/netif
for folder in leases links lldp; do mkdir "/run/systemd/netif/$folder"; done
chown -R systemd-network:systemd-network /run/systemd/netif
find "$1" -path '*/udev/rules.d/*' -exec cp -t /run/udev/rules.d {{}} +
cp "$2/udev.rules" /run/udev/rules.d/99-zz-gateway-subscribers.rules
cp "$2/subscribers.network" /run/systemd/network/00-gateway-subscribers.network
printf '[Match]\\nName=*\\n[Network]\\nDHCP=yes\\n' > /run/systemd/network/50-all.network
ln -s "$1/bin/udevadm" /run/systemd-udevd
/run/systemd-udevd --daemon
{_NETWORKD} &
echo
wait
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """What the daemons see as /."""
    udev = unpacked(tmp_path, lambda: ["udev"])
    options = ("--mount", "--pid", "--fork", "--kill-child")
    with (
        network_namespace(),
        unshared(*options, "sh", "-c", _DAEMONS, "sh", str(udev), str(_PACKAGING)) as pid,
    ):
        yield Path(f"/proc/{pid}/root")


def test_the_links_of_subscribers_are_left_alone_and_no_others(root: Path) -> None:
    ours, others = ("trunk0.300", "ifb-ppp7"), ("trunk0.4", "eth0")
    groups = {**dict.fromkeys(ours, SUBSCRIBER_GROUP), "trunk0.4": 7, "eth0": 0}
    for number, (name, group) in enumerate(groups.items()):
        ip(f"link add {name} group {group} type veth peer name far{number}")
    expected = {name: "unmanaged" if name in ours else "configuring" for name in groups}
    wait_for("networkd", lambda: {name: networkd_state(root, name) for name in groups} == expected)
    for name in groups:
        lines = (root / f"run/udev/data/n{socket.if_nametoindex(name)}").read_text().splitlines()
        # The tag has systemd make a unit of the device.
        assert ("Q:systemd" in lines) == (name in others)


def networkd_state(root: Path, name: str) -> str:
    file = root / f"run/systemd/netif/links/{socket.if_nametoindex(name)}"
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition("=")[2] for line in lines if line.startswith("ADMIN_STATE=")), "")
