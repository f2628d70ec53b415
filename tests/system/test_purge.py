"""What the package's script at a removal does to the kernel, in a network and with files of its own."""

import socket
import subprocess
import time
from pathlib import Path

import pytest

from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.dataplane import dhcp_guard, firewall
from gateway_core.gateways.linux.kernel.links import SUBSCRIBER_GROUP
from tests.support.clocks import SteppedClock
from tests.support.documents import valid_document
from tests.support.namespaces import can, ip, network_namespace
from tests.support.nftables import nft

pytestmark = pytest.mark.skipif(
    not can("nft add table inet t"), reason="needs to be root, a kernel with nf_tables, and nft"
)

_SCRIPT = Path(__file__).parents[2] / "packaging/debian/gateway-core.postrm"
#: No users, no units, no state: of this machine, it must remove nothing.
_EMPTY = """
set -e
mount --make-rprivate /
for folder in /etc /run /var/lib; do mount -t tmpfs none "$folder"; done
export DPKG_MAINTSCRIPT_NAME=postrm DPKG_MAINTSCRIPT_PACKAGE=gateway-core
exec "$1" "$2"
"""


@pytest.mark.parametrize(("action", "stay"), [("remove", True), ("purge", False)])
def test_a_purge_removes_the_tables_of_the_gateway_and_the_links_of_subscribers_and_no_other(
    action: str, stay: bool
) -> None:
    configuration = RunningConfiguration.of(valid_document()).sections
    others = ["table inet gateway_of_others", "table ip gateway", "table inet filter"]
    with network_namespace():
        # In place of VLANs, which a small kernel lacks.
        ip(
            "link add trunk0 type veth peer name far0",
            f"link add v300 group {SUBSCRIBER_GROUP} type veth peer name far300",
        )
        for each in others:
            nft(f"add {each}")
            nft(f"add chain {each.removeprefix('table ')} input {{ type filter hook input priority 0; }}")
        foreign = nft("list ruleset")
        firewall.Firewall(time.time).configure(configuration)
        bindings = [("trunk0.301", "02:00:00:00:00:07")]
        dhcp_guard.DhcpGuard(configuration.demux, lambda: bindings, SteppedClock(), time.time).sync()
        firewall.ArpLimit(time.time).check()
        ours = [f"table {each}" for each in (firewall.TABLE, dhcp_guard.TABLE, firewall.ARP_TABLE)]
        assert nft("list tables").splitlines() == [*others, *ours]
        subprocess.run(["unshare", "--mount", "sh", "-c", _EMPTY, "sh", str(_SCRIPT), action], check=True)
        assert nft("list tables").splitlines() == [*others, *(ours if stay else ())]
        assert stay or nft("list ruleset") == foreign
        names = {name for _, name in socket.if_nameindex()}
    assert names - {"lo"} == {"trunk0", "far0", *(("v300", "far300") if stay else ())}
