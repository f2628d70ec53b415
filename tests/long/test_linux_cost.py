"""What sessions of the Linux gateway cost the core, in CPU seconds: other load on the machine adds few."""

import time
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from gateway_core.gateways.linux.dataplane.plane import DataPlane, WantedSession
from gateway_core.gateways.linux.kernel.reader import KernelReader
from tests.support.namespaces import ip_batch, network_namespace
from tests.system.test_data_plane import WANTED
from tests.system.test_shaping import HAS_FQ_CODEL, needs_shaping

pytestmark = needs_shaping

SESSIONS = 10_000
#: Sessions whose limits are made one after the other, some at once.
STEP, AT_ONCE = 1000, 250
#: A session at 10,000 may cost so many times one at 1,000. For each fq_codel, the kernel walks a list of all.
GROWTH = 8 if HAS_FQ_CODEL else 2


def test_of_10_000_sessions_the_last_get_limits_and_routes_as_fast_as_the_first() -> None:
    with network_namespace():
        wanted, plane = lines(SESSIONS), DataPlane(KernelReader())
        spent = [made(plane, wanted[first : first + STEP]) for first in range(0, SESSIONS, STEP)]
        assert len(KernelReader().read_qdisc_entries()) >= 3 * SESSIONS
    assert median(spent[-3:]) < GROWTH * median(spent[:3])


def lines(number: int) -> list[WantedSession]:
    """Sessions without limits yet, with the devices that they have."""
    names = [f"line{each}" for each in range(number)]
    ip_batch(["address add 100.64.0.1/32 dev lo"])
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    ip_batch([each for name in names for each in (f"link add {name} type ifb", f"link set {name} up")])
    # As on a gateway: it is the core that keeps IPv6 from the devices that it makes.
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("0")
    return [
        replace(
            WANTED, session_id=each, device=name, ifb=f"ifb-{name}",
            address=IPv4Address("100.64.1.0") + each, delegated=(),
        )
        for each, name in enumerate(names, 1)
    ]  # fmt: skip


def made(plane: DataPlane, wanted: Sequence[WantedSession]) -> float:
    """CPU seconds of the core and the kernel until sessions have all that they need."""
    before = time.thread_time()
    for first in range(0, len(wanted), AT_ONCE):
        outcomes = plane.repair([(each, None) for each in wanted[first : first + AT_ONCE]])
        assert all(outcome is not None and not outcome.failed for outcome in outcomes)
    return time.thread_time() - before
