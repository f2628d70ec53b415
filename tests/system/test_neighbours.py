"""How many neighbours the kernel keeps. It has one table for all network namespaces, whose thresholds
`test_virtual_machine` raises."""

import errno
import socket

import pytest

from gateway_core.gateways.linux.kernel.links import raise_thresholds, read_thresholds
from gateway_core.gateways.linux.kernel.netlink import KernelError
from tests.support.namespaces import can, network_namespace


@pytest.mark.skipif(not can("ip link"), reason="needs to be root, for a network of its own")
def test_another_network_namespace_cannot_raise_them() -> None:
    before = read_thresholds(socket.AF_INET)
    assert before is not None
    with network_namespace():
        with pytest.raises(
            KernelError, match="cannot raise the thresholds of the neighbour tables"
        ) as refused:
            raise_thresholds(before[2] + 1)
        assert refused.value.code == errno.ENOENT
        assert read_thresholds(socket.AF_INET) == before
