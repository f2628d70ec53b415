"""The VLANs of the demux as a list."""

from collections.abc import Callable, Sequence
from typing import Any

from gateway_api.core.gateways.linux.demux.admission import ServedVlan
from gateway_api.core.gateways.linux.views.interfaces import Links, vlan_key
from gateway_api.core.records.paging import Rows, Sorted
from gateway_api.core.sessions.table import SessionTable
from gateway_api.wire.core.network import DemuxState, DemuxVlan, Vlan

#: Of a device that the kernel does not have, while it is made or removed (RFC 2863 ifOperStatus).
_NOT_PRESENT = "notpresent"


class ManagedVlans:
    """The VLANs of one moment. Their times are of the steady clock, which is `ahead` seconds behind epoch."""

    def __init__(
        self, vlans: Sequence[ServedVlan], links: Links, sessions: SessionTable[Any], ahead: float
    ) -> None:
        self._vlans = sorted(vlans, key=lambda served: vlan_key(served.vlan))
        self._links = links
        self._sessions = sessions
        self._ahead = ahead

    def rows(self) -> Rows:
        """Vlan by trunk and tags."""
        return self._rows(lambda served: Vlan(**self._fields(served)))

    def demux_rows(self) -> Rows:
        """DemuxVlan by trunk and tags."""
        return self._rows(self._demux_vlan)

    def _rows(self, record: Callable[[ServedVlan], Vlan]) -> Rows:
        return Sorted(self._vlans, lambda served: vlan_key(served.vlan), record)

    def _demux_vlan(self, served: ServedVlan) -> DemuxVlan:
        fields = self._fields(served)
        return DemuxVlan(**fields, state=DemuxState.ACTIVE if fields["session_count"] else DemuxState.IDLE)

    def _fields(self, served: ServedVlan) -> dict[str, Any]:
        vlan, link = served.vlan, self._links.named(served.vlan.name)
        return {
            "name": vlan.name,
            "trunk": vlan.trunk,
            "vlan_id": vlan.vlan_id,
            "outer_vlan_id": vlan.outer_vlan_id,
            "protocol": vlan.protocol,
            "oper_state": _NOT_PRESENT if link is None else link.oper_state,
            "session_count": len(self._sessions.on_access_interface(vlan.name)),
            "created_at": int(served.created_at + self._ahead),
        }
