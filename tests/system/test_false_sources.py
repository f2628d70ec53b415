"""Packets of a line with addresses that are not its own: no other address may receive anything of them."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.support.inside import false_sources
from tests.support.kernel import run_in_machine, seen_by
from tests.support.namespaces import can

_REPOSITORY = Path(__file__).parents[2]
_WITH_FIB = "nft 'add table inet t; add chain inet t c; add rule inet t c fib saddr . iif oif missing drop'"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            "here",
            marks=pytest.mark.skipif(
                not can("ip link add v type veth peer name w", _WITH_FIB),
                reason="needs to be root, a kernel with veth and nft_fib, and nft",
            ),
        ),
        pytest.param("Debian's kernel", marks=[pytest.mark.slow, pytest.mark.timeout(3000)]),
    ],
)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, dict[str, int]]]:
    """What was sent, and what reached others, by the state of the line and the kind of packet."""
    folder = tmp_path_factory.mktemp("shared")
    if request.param == "here":
        return false_sources.run(folder)
    command = f"{shlex.quote(sys.executable)} -m tests.support.inside.false_sources"
    script = f"""
        cd {shlex.quote(str(_REPOSITORY))}
        {command} > /mnt/shared/false_sources.json 2> /mnt/shared/false_sources.errors || true
    """
    run_in_machine(script, folder, needs_packet_filter=True)
    return seen_by(folder, "false_sources")


@pytest.mark.parametrize("state", ["without a session", "with a session"])
def test_no_packet_with_a_false_source_makes_the_gateway_send_to_others(
    seen: dict[str, dict[str, dict[str, int]]], state: str
) -> None:
    kinds = seen[state]
    assert {name: each["bytes"] for name, each in kinds.items() if each["bytes"]} == {}
    assert all(each["sent"] > 0 for each in kinds.values())
    assert len(kinds) == len(false_sources.KINDS4) + len(false_sources.KINDS6)
