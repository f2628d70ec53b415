"""The core daemon with a gateway that has faults: `python -m tests.support.faulty_core`, with the arguments
of `gateway_core`. The lab alone never has any."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from gateway_contract.base.errors import StillConnected
from gateway_contract.core.health import (
    Dependency,
    FaultKind,
    LimitDelays,
    PacketDrops,
    SkippedEntries,
    TriggerRefusal,
)
from gateway_contract.core.sessions import EndedSession, SessionDetail, SessionState
from gateway_core.__main__ import main
from gateway_core.commands import lab
from gateway_core.gateways.lab.gateway import LabGateway
from gateway_core.gateways.protocols import make_fault_rows
from gateway_core.records.paging import Rows
from tests.support.running_gateway import (
    DELAYS,
    DEPENDENCIES,
    DROPS,
    FAULTS,
    REFUSALS,
    REPAIRS,
    SKIPPED,
    SOURCES,
    STALE,
    held,
)


def _hold(method: str) -> None:
    file = held(Path(sys.argv[sys.argv.index("--socket") + 1]), method)
    while file.exists():
        time.sleep(0.05)


class FaultyGateway(LabGateway):
    """A lab with the faults, repairs and sources of `running_gateway`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        with self.sessions.lock:
            for id in STALE:
                session = self.sessions.get(id)
                assert session is not None
                summary = replace(session.summary, state=SessionState.STALE)
                self.sessions.replace(replace(session, summary=summary))

    def read_detail(self, id: int) -> SessionDetail | None:
        _hold("detail")
        found = super().read_detail(id)
        if found is None:
            return None
        return replace(found, faults=tuple(fault for fault in FAULTS if fault.session_id == id))

    def disconnect(self, ids: Sequence[int]) -> list[SessionDetail]:
        """End a single session. Of several sessions, end none, and report all as ended but one in no list."""
        if len(ids) == 1:
            return super().disconnect(ids)
        found = [session for session in map(self.sessions.get, ids) if session is not None]
        ended = [EndedSession.of(session.summary) for session in found]
        raise StillConnected(1, ended, f"{SOURCES[0]} does not reply")

    def list_faults(self) -> Rows:
        _hold("faults")
        return make_fault_rows(FAULTS)

    def count_repairs(self) -> dict[FaultKind, int]:
        return REPAIRS

    def count_refusals(self) -> Counter[TriggerRefusal]:
        return REFUSALS

    def list_packet_drops(self) -> tuple[PacketDrops, ...]:
        return DROPS

    def count_skipped_entries(self) -> tuple[SkippedEntries, ...]:
        return SKIPPED

    def read_limit_delays(self) -> LimitDelays:
        return DELAYS

    def list_unavailable_sources(self) -> tuple[str, ...]:
        return SOURCES

    def list_dependencies(self) -> tuple[Dependency, ...]:
        return DEPENDENCIES


if __name__ == "__main__":
    with patch.object(lab, "LabGateway", FaultyGateway):
        sys.exit(main())
