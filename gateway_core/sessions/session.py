"""One session of a subscriber, and the records that show it."""

import socket
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Any, get_args, get_type_hints

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

#: With the name of a session's device, the name of its IFB.
IFB_PREFIX = "ifb-"
#: linux/if.h: IFNAMSIZ is 16, with a zero byte at the end.
LONGEST_NAME = 15
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
    gateway: str | None
    overhead_profile: str
    acct_session_id: str
    vrf_steered: bool
    shared_address: bool
    #: Of the rates, if they are temporary.
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
        """The device that shapes the upstream. Its name fits into what Linux takes."""
        name = f"{IFB_PREFIX}{self.summary.interface}"
        return name if len(name) <= LONGEST_NAME else f"{IFB_PREFIX}{self.id}"

    @property
    def is_pppoe(self) -> bool:
        return self.summary.type == _PPPOE

    def detail(self, counters: Counters, faults: Iterable[Fault] = ()) -> SessionDetail:
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
            qdisc="tbf",
            rate_expires_at=self.expiry.expires_at if self.expiry else None,
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

    def networks(self) -> Iterator[int]:
        """The IPv6 address and prefixes, as `ipv6.network` makes them."""
        summary = self.summary
        for text in (summary.ipv6_address, summary.ipv6_prefix, *summary.delegated_prefixes):
            if text is not None:
                yield ipv6.network(text)

    def matches(self, wanted: SessionFilter) -> bool:
        """Return True when every given condition holds. An IPv6 address in it must be valid."""
        return (
            (wanted.type is None or self.summary.type.lower() == wanted.type)
            and (wanted.username is None or self.summary.username == wanted.username)
            and (wanted.ip_address is None or self._has_address(wanted.ip_address))
            and (wanted.mac_address is None or self.summary.mac_address == wanted.mac_address)
            and (wanted.interface is None or wanted.interface in (self.interface, self.access_interface))
        )

    def _has_address(self, address: str) -> bool:
        if not ipv6.is_meant(address):
            return self.summary.ip_address == address
        wanted = ipv6.address(address)
        return any(ipv6.is_inside(wanted, network) for network in self.networks())


def sort_key(field: str) -> Callable[[Session], int | str]:
    """Return the sort key for a field of the summary: null is the least, addresses sort as numbers, and
    prefixes by address, then by length."""
    read, made, kinds = attrgetter(f"summary.{field}"), _ADDRESS_KEYS.get(field), get_args(_HINTS[field])
    if made is not None:
        return lambda session: made(read(session))
    if NoneType not in kinds:
        return read
    least = kinds[0]()
    return lambda session: read(session) or least


def value_key(field: str) -> Callable[[Any], int | str]:
    """Return the sort key for the values of a field of this name in other records."""
    return _ADDRESS_KEYS.get(field, lambda value: value)


@cache
def session_ordering(field: str, type: SessionTypeFilter | None = None) -> Ordering[Session]:
    """By a field of the summary, then by id: of all sessions, or of those of a type. The same object for the
    same arguments."""
    value = sort_key(field)

    def key(session: Session) -> tuple[int | str, int]:
        return value(session), session.summary.id

    wanted = SessionFilter(type=type)
    return Ordering(key, None if type is None else lambda session: session.matches(wanted))


def ipv4_key(address: str | None) -> int:
    """Return the address as a number, -1 for none."""
    return -1 if address is None else int.from_bytes(socket.inet_aton(address))


def _ipv6_key(text: str | None) -> str:
    return "" if text is None else ipv6.sort_key(text)


_ADDRESS_KEYS: dict[str, Callable[[Any], int | str]] = {
    "ip_address": ipv4_key,
    "ipv6_address": _ipv6_key,
    "ipv6_prefix": _ipv6_key,
    "delegated_prefixes": lambda prefixes: "".join(map(ipv6.sort_key, prefixes)),
}
_HINTS = get_type_hints(SessionSummary)
