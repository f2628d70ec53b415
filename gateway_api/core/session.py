"""One session of a subscriber, and the records that show it."""

import socket

from msgspec.structs import asdict

from gateway_api.core.configuration.fields import OVERHEAD_PROFILES
from gateway_api.core.configuration.sections import Cgnat
from gateway_api.wire.contract import Record
from gateway_api.wire.core.network import CgnatSession, SessionQos
from gateway_api.wire.core.sessions import SessionDetail, SessionFilter, SessionSummary, SessionType

#: With the name of a session's device, the name of its IFB.
IFB_PREFIX = "ifb-"
# A list of routes compares with it 200,000 times. In Python 3.11, access to the member takes longer
# than the comparison.
_PPPOE = SessionType.PPPOE


class Counters(Record, frozen=True):
    """The traffic of a session: `in` comes from the subscriber (RFC 2866 section 5.3)."""

    bytes_in: int
    bytes_out: int
    packets_in: int
    packets_out: int


class Session(Record, frozen=True):
    """One session at one moment. A change makes another object. A gateway may add fields in a subclass.

    `summary` is the record of the list, ready to encode: a list of 200,000 is not built for each request.
    """

    summary: SessionSummary
    gateway: str
    overhead_profile: str
    acct_session_id: str
    vrf_steered: bool
    shared_address: bool

    @property
    def id(self) -> int:
        return self.summary.id

    @property
    def interface(self) -> str:
        return self.summary.interface

    @property
    def access_interface(self) -> str:
        return self.summary.access_interface

    @property
    def ifb_device(self) -> str:
        """The device that shapes the upstream."""
        return f"{IFB_PREFIX}{self.summary.interface}"

    @property
    def is_pppoe(self) -> bool:
        return self.summary.type == _PPPOE

    def detail(self, counters: Counters) -> SessionDetail:
        return SessionDetail(
            id=self.id,
            session_type=self.summary.type,
            state=self.summary.state,
            username=self.summary.username,
            mac_address=self.summary.mac_address,
            ip_address=self.summary.ip_address,
            gateway=self.gateway,
            access_interface=self.access_interface,
            ppp_interface=self.interface if self.is_pppoe else "",
            rate_down_bps=self.summary.rate_down,
            rate_up_bps=self.summary.rate_up,
            overhead_profile=self.overhead_profile,
            vrf_steered=self.vrf_steered,
            acct_session_id=self.acct_session_id,
            started_at=self.summary.started_at,
            **asdict(counters),
        )

    def qos(self) -> SessionQos:
        profile = OVERHEAD_PROFILES[self.overhead_profile]
        return SessionQos(
            session_id=self.id,
            username=self.summary.username,
            interface=self.interface,
            ifb_device=self.ifb_device,
            rate_down_bps=self.summary.rate_down,
            rate_up_bps=self.summary.rate_up,
            overhead_profile=profile.name,
            overhead=profile.overhead,
            mpu=profile.mpu,
            qdisc="htb",
        )

    def cgnat(self, cgnat: Cgnat) -> CgnatSession:
        return CgnatSession(
            id=self.id,
            type=self.summary.type,
            username=self.summary.username,
            ip_address=self.summary.ip_address,
            interface=self.interface,
            vrf_name=cgnat.vrf_name,
            vrf_table=cgnat.vrf_table,
            handoff_interface=cgnat.handoff_interface,
            handoff_gateway=str(cgnat.handoff_gateway),
            started_at=self.summary.started_at,
        )

    def matches(self, wanted: SessionFilter) -> bool:
        """True when every given condition holds."""
        return (
            (wanted.type is None or self.summary.type.lower() == wanted.type)
            and (wanted.username is None or self.summary.username == wanted.username)
            and (wanted.ip_address is None or self.summary.ip_address == wanted.ip_address)
            and (wanted.mac_address is None or self.summary.mac_address == wanted.mac_address)
            and (wanted.interface is None or wanted.interface in (self.interface, self.access_interface))
        )


def sort_key(session: Session, field: str) -> int | str:
    """The sort key for a field of the summary: addresses sort as numbers."""
    value: int | str = getattr(session.summary, field)
    if field == "ip_address":
        return int.from_bytes(socket.inet_aton(str(value)))
    return value
