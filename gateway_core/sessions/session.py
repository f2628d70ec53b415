"""Sessions of subscribers, and the records that show them."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import get_args, get_type_hints

from gateway_contract.base import ipv6
from gateway_contract.configuration import Cgnat
from gateway_contract.contract import Record, record_of
from gateway_contract.core.health import Fault
from gateway_contract.core.network import OVERHEAD_PROFILES, CgnatSession, SessionQos
from gateway_contract.core.sessions import (
    SessionDetail,
    SessionFilter,
    SessionSummary,
    SessionType,
    SessionTypeFilter,
)
from gateway_core.records.clock import Expiry
from gateway_core.records.orders import Ordering
from gateway_core.records.paging import ADDRESS_KEYS

#: Prefix of the name of an IFB; the rest is the name of the session's device.
IFB_PREFIX = "ifb-"
#: linux/if.h: IFNAMSIZ is 16, with a zero byte at the end.
MAX_NAME_LENGTH = 15
# A list of routes compares 200,000 types with PPPoE. In Python 3.11, reading the member of the enumeration
# takes longer than the comparison.
_PPPOE = SessionType.PPPOE


class Counters(Record, frozen=True):
    """Traffic counters of a session. Input is traffic from the subscriber (RFC 2866 section 5.3)."""

    bytes_in: int
    bytes_out: int
    packets_in: int
    packets_out: int


class Session(Record, frozen=True):
    """State of a session at one moment. Each change of a session makes a new object. A gateway may add fields
    in a subclass.

    `summary` is the record of the session in lists, ready to encode: making 200,000 records for each request
    would take too long.
    """

    summary: SessionSummary
    gateway: str | None
    overhead_profile: str
    acct_session_id: str
    vrf_steered: bool
    shared_address: bool
    #: The end of temporary rates; None for lasting rates.
    expiry: Expiry | None = None

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
        """Name of the IFB device that shapes the upload, short enough for Linux."""
        name = f"{IFB_PREFIX}{self.summary.interface}"
        return name if len(name) <= MAX_NAME_LENGTH else f"{IFB_PREFIX}{self.id}"

    @property
    def is_pppoe(self) -> bool:
        return self.summary.type == _PPPOE

    def make_detail(self, counters: Counters, faults: Iterable[Fault] = ()) -> SessionDetail:
        expiry = self.expiry
        return record_of(
            SessionDetail, self.summary, self, counters,
            session_type=self.summary.type,
            ppp_interface=self.interface if self.is_pppoe else "",
            rate_down_bps=self.summary.rate_down,
            rate_up_bps=self.summary.rate_up,
            faults=tuple(faults),
            rate_expires_at=expiry.expires_at if expiry else None,
            former_rate_down_bps=expiry.former_down if expiry else None,
            former_rate_up_bps=expiry.former_up if expiry else None,
        )  # fmt: skip

    # Without `record_of`, which would take three times as long: lists have one of these records for each
    # session.

    def make_qos(self) -> SessionQos:
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
            qdisc="tbf",
            rate_expires_at=self.expiry.expires_at if self.expiry else None,
        )

    def make_cgnat(self, cgnat: Cgnat) -> CgnatSession:
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

    def iterate_networks(self) -> Iterator[int]:
        """Yield the IPv6 address and the IPv6 prefixes of the session, each as a number that
        `ipv6.parse_network` returns."""
        summary = self.summary
        for text in (summary.ipv6_address, summary.ipv6_prefix, *summary.delegated_prefixes):
            if text is not None:
                yield ipv6.parse_network(text)

    def matches(self, wanted: SessionFilter) -> bool:
        """Return True if the session meets all conditions of the filter. An IPv6 address in the filter must
        be valid."""
        return (
            (wanted.type is None or self.summary.type.lower() == wanted.type)
            and (wanted.username is None or self.summary.username == wanted.username)
            and (wanted.ip_address is None or self._has_address(wanted.ip_address))
            and (wanted.mac_address is None or self.summary.mac_address == wanted.mac_address)
            and (wanted.interface is None or wanted.interface in (self.interface, self.access_interface))
        )

    def _has_address(self, address: str) -> bool:
        if not ipv6.looks_like_ipv6(address):
            return self.summary.ip_address == address
        wanted = ipv6.parse_address(address)
        return any(ipv6.is_inside(wanted, network) for network in self.iterate_networks())


def make_sort_key(field: str) -> Callable[[Session], int | str]:
    """Return a function that returns the sort key of a session by a field of the summary. Null values sort
    first, addresses sort as numbers, and prefixes sort by address, then by length."""
    read, address_key, value_types = (
        attrgetter(f"summary.{field}"),
        ADDRESS_KEYS.get(field),
        get_args(_SUMMARY_TYPES[field]),
    )
    if address_key is not None:
        return lambda session: address_key(read(session))
    if NoneType not in value_types:
        return read
    least = value_types[0]()
    return lambda session: read(session) or least


@cache
def get_session_ordering(field: str, type: SessionTypeFilter | None = None) -> Ordering[Session]:
    """Return the order of sessions by a field of the summary, then by id. The order includes all sessions, or
    only the sessions of the given type. The same arguments return the same object, which identifies a view of
    the session table."""
    value = make_sort_key(field)
    wanted = SessionFilter(type=type)
    return Ordering(
        lambda session: (value(session), session.summary.id),
        None if type is None else lambda session: session.matches(wanted),
    )


_SUMMARY_TYPES = get_type_hints(SessionSummary)
