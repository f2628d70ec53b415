"""The core daemon with a gateway that has faults: `python -m tests.support.faulty_core`, with the arguments
of `gateway_core`. The lab alone never has any."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from gateway_contract.base.errors import StillConnected
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
from gateway_contract.core.sessions import EndedSession, SessionDetail, SessionState
from gateway_core.__main__ import main
from gateway_core.commands import lab
from gateway_core.gateways.lab.access import LabSession
from gateway_core.gateways.lab.gateway import LabGateway
from gateway_core.gateways.protocols import fault_rows
from gateway_core.records.paging import Rows
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
    """While there is this file, the core at the socket does not reply to calls that need this method of the
    gateway."""
    return socket.with_name(f"held-{method}")


def _hold(method: str) -> None:
    file = held(Path(sys.argv[sys.argv.index("--socket") + 1]), method)
    while file.exists():
        time.sleep(0.05)


class FaultyGateway(LabGateway):
    """A lab with the faults, repairs and sources above."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        with self.sessions.lock:
            for id in STALE:
                session = self.sessions.get(id)
                assert session is not None
                summary = replace(session.summary, state=SessionState.STALE)
                self.sessions.replace(replace(session, summary=summary))

    def detail(self, id: int) -> SessionDetail | None:
        _hold("detail")
        found = super().detail(id)
        if found is None:
            return None
        return replace(found, faults=tuple(fault for fault in FAULTS if fault.session_id == id))

    def disconnect_interface(self, interface: str, *, dry_run: bool) -> list[LabSession] | None:
        """Ends none, and tells that all have ended but one that no list has."""
        found = super().disconnect_interface(interface, dry_run=True)
        if dry_run or not found:
            return found
        ended = [EndedSession.of(session.summary) for session in found]
        raise StillConnected(1, ended, f"{SOURCES[0]} does not reply")

    def faults(self) -> Rows:
        _hold("faults")
        return fault_rows(FAULTS)

    def repairs(self) -> dict[FaultKind, int]:
        return REPAIRS

    def refusals(self) -> Counter[TriggerRefusal]:
        return REFUSALS

    def packet_drops(self) -> tuple[PacketDrops, ...]:
        return DROPS

    def skipped_entries(self) -> tuple[SkippedEntries, ...]:
        return SKIPPED

    def limit_delays(self) -> LimitDelays:
        return DELAYS

    def unavailable_sources(self) -> tuple[str, ...]:
        return SOURCES

    def dependencies(self) -> tuple[Dependency, ...]:
        return DEPENDENCIES


@contextmanager
def faulty_gateway(api: Api, state: Path, folder: Path) -> Iterator[Api]:
    """A gateway of 20 sessions with these faults. The users are those of the stack `api`, whose folder is
    `state`."""
    socket = folder / "core.sock"
    with (
        running_core(socket, state / "factory.json", "--sessions", "20", module=PROGRAM),
        running_api(socket, state) as url,
    ):
        yield Api({**api.environment, "GATEWAY_URL": url})


if __name__ == "__main__":
    with patch.object(lab, "LabGateway", FaultyGateway):
        sys.exit(main())
