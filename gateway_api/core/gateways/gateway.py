"""What the core's service needs of a gateway, whichever it is.

All of one call's answer is of one moment, and any thread may call.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.paging import Rows
from gateway_api.core.sessions import Session
from gateway_api.wire.core import SessionDetail, SessionFilter, Statistics


class Gateway(Protocol):
    """Rates are bits a second, times epoch seconds. A method that changes a session returns what it was, None
    if there is no such session; its change shows in every list when it returns."""

    def configure(self, configuration: Configuration) -> None:
        """Follows a new running configuration: sessions on a trunk that it no longer has end, the
        rest goes on; steering, limits, and the rates of sessions to come are the new ones."""

    def disconnect(self, id: int) -> SessionDetail | None:
        """Ends a session; its record at the end."""

    def disconnect_interface(self, interface: str, *, dry_run: bool) -> list[Session] | None:
        """Ends, or only finds, all sessions that arrived on an interface. None when there is no such
        interface, of whatever type."""

    def set_rate(self, id: int, down_bps: int, up_bps: int) -> tuple[SessionDetail, SessionDetail] | None:
        """Shapes a session at other rates; its record before and after."""

    def uptime(self) -> int:
        """Whole seconds since the gateway's start."""

    def statistics(self) -> Statistics:
        """The counts; asking costs the same for any number of sessions."""

    def find(self, wanted: SessionFilter) -> Sequence[Session]:
        """The sessions that fit, by id."""

    def detail(self, id: int) -> SessionDetail | None:
        """One session with its counters."""

    def qos(self) -> Rows:
        """SessionQos by session id."""

    def cgnat_sessions(self) -> Rows:
        """CgnatSession by session id."""

    def vlans(self) -> Rows:
        """Vlan by trunk and tags."""

    def demux_vlans(self) -> tuple[Rows, int]:
        """DemuxVlan by trunk and tags, and how many were refused by the limits."""

    def interfaces(self) -> Rows:
        """Interface: the fixed ones, VLANs, the sessions' devices, their IFBs."""

    def routes(self) -> Rows:
        """Route: the network's own first, then the sessions' by id."""

    def bgp_summary(self) -> dict[str, Any]:
        """As FRR's `show bgp summary json`; empty without BGP."""
