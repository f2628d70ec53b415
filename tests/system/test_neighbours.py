"""How many neighbours the kernel keeps. It has one table for all network namespaces, so what the core changes
shows in a machine of its own."""

import errno
import socket
import sys
from pathlib import Path

import pytest

from gateway_api.core.gateways.linux.kernel.links import raise_thresholds, thresholds
from gateway_api.core.gateways.linux.kernel.messages import KernelError
from tests.support.kernel import run_in_machine
from tests.support.namespaces import can, network_namespace

#: The administrator has set one of them higher. Not each kernel here has IPv6.
_SCRIPT = f"""
cd {Path(__file__).parents[2]}
echo 12000 > /proc/sys/net/ipv4/neigh/default/gc_thresh2
for number in 5000 5000 2000; do
    {sys.executable} -c "from gateway_api.core.gateways.linux.kernel import links
print(links.raise_thresholds($number))"
    for threshold in 1 2 3; do cat /proc/sys/net/ipv4/neigh/default/gc_thresh$threshold; done
done
"""


@pytest.mark.slow
def test_thresholds_are_raised_and_never_lowered(tmp_path: Path) -> None:
    raised = ["5000", "12000", "20000"]
    assert run_in_machine(_SCRIPT, tmp_path).splitlines() == ["True", *raised, *["False", *raised] * 2]


@pytest.mark.skipif(not can("ip link"), reason="needs to be root, for a network of its own")
def test_another_network_namespace_cannot_raise_them() -> None:
    before = thresholds(socket.AF_INET)
    assert before is not None
    with network_namespace():
        with pytest.raises(
            KernelError, match="cannot raise the thresholds of the neighbour tables"
        ) as refused:
            raise_thresholds(before.third + 1)
        assert refused.value.code == errno.ENOENT
        assert thresholds(socket.AF_INET) == before
