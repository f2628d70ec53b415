"""A gateway with faults, and what it tells of them. The lab alone never has any."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway_contract.core.health import (
    DelayCount,
    Dependency,
    DependencyState,
    Fault,
    FaultKind,
    LimitDelays,
    PacketDrops,
    SkippedEntries,
    TriggerRefusal,
)
from tests.support.stack import Api, running_api, running_core

PROGRAM = "tests.support.faulty_core"
BEGAN = 1_795_271_513
#: Session 1 has the first two. In no order.
FAULTS = (
    Fault(FaultKind.SHAPER, "ppp0", 1, "No space left on device", BEGAN + 9),
    Fault(FaultKind.HOST_ROUTE, "100.64.0.1/32", 1, "Network is unreachable", BEGAN),
    Fault(FaultKind.VLAN, "trunk0.4000", None, "<b>File exists</b>", BEGAN + 5),
    *(
        Fault(FaultKind.IFB, f"ifb-ppp{number}", number, "No such device", BEGAN + 9)
        for number in range(2, 12)
    ),
)
REPAIRS = {kind: number for number, kind in enumerate(FaultKind)}
REFUSALS = Counter({reason: 100 + number for number, reason in enumerate(TriggerRefusal)})
SKIPPED = (SkippedEntries("dnsmasq", "lease", 3), SkippedEntries("kernel", "link", 0))
DROPS = (PacketDrops("trunk0", 7, 9), PacketDrops("ppp", 8, 10))
DELAYS = LimitDelays((DelayCount(0.5, 297), DelayCount(1.0, 298)), 300, 12.5)
SOURCES = ("accel-ppp", "dnsmasq")
DEPENDENCIES = (
    Dependency("accel-ppp", DependencyState.FAILED, "accel-ppp has not replied since 2026-03-01T12:00:00Z."),
    Dependency("dnsmasq", DependencyState.UNKNOWN, "dnsmasq has not replied yet."),
    Dependency("radius", DependencyState.DEGRADED, "2 requests timed out in the last 5 minutes."),
    Dependency("frr", DependencyState.OK, "All BGP sessions are established: 2."),
    Dependency("clock", DependencyState.UNUSED, "Nobody needs the time."),
)
#: The ids of sessions whose source does not reply.
STALE = (1, 2, 3)


def held(socket: Path, method: str) -> Path:
    """Return the path of a file. While the file exists, the core does not reply to calls that need
    `method` of the gateway."""
    return socket.with_name(f"held-{method}")


@contextmanager
def faulty_gateway(api: Api, state: Path, folder: Path) -> Iterator[Api]:
    """Run a gateway with 20 sessions and these faults. Its users are those of the stack `api`, whose
    folder is `state`."""
    socket = folder / "core.sock"
    with (
        running_core(socket, state / "factory.json", "--sessions", "20", module=PROGRAM),
        running_api(socket, state) as url,
    ):
        yield Api({**api.environment, "GATEWAY_URL": url})
