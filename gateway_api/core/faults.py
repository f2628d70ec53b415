"""The order of faults in every list."""

from collections.abc import Sequence

from gateway_api.core.paging import Key, Rows, Unsorted
from gateway_api.wire.core.faults import Fault


def fault_rows(faults: Sequence[Fault]) -> Rows:
    """Fault by since, object, kind and session id, from faults in any order. No two may have all of them in
    common."""
    return Unsorted(faults, _key, lambda fault: fault, descending=False)


def _key(fault: Fault) -> Key:
    return fault.since, fault.object, fault.kind, fault.session_id or 0
