"""Packets of a line with addresses that are not its own: no other address may receive anything of them."""

from pathlib import Path

import pytest

from tests.support.inside import false_sources
from tests.support.namespaces import can

_WITH_FIB = "nft 'add table inet t; add chain inet t c; add rule inet t c fib saddr . iif oif missing drop'"


@pytest.mark.skipif(
    not can("ip link add v type veth peer name w", _WITH_FIB),
    reason="needs to be root, a kernel with veth and nft_fib, and nft",
)
def test_no_packet_with_a_false_source_makes_the_gateway_send_to_others(tmp_path: Path) -> None:
    for state, kinds in false_sources.run(tmp_path).items():
        assert false_sources.faults(kinds) == [], state
