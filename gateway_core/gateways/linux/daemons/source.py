"""Interface of a source of sessions: a daemon that terminates the connections of subscribers, such as
accel-ppp.

The session list of the source is authoritative: a session that is not in the list has ended. While a source
does not reply, its sessions are stale, but have not ended.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv6Network
from types import MappingProxyType
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.core.health import DependencyState
from gateway_contract.core.sessions import SessionType
from gateway_core.records.clock import Clock

#: Reasons of ends: nothing is known; a request; a restart of the machine, which ends all sessions.
UNKNOWN, ADMIN_DISCONNECT, NAS_REBOOT = "unknown", "admin_disconnect", "nas_reboot"
#: Seconds after a request in which the end of the session is attributed to the request.
_MAX_REQUEST_AGE_SECONDS = 60.0
#: Seconds by which the start of a session may differ after a restart of the core: uptimes are whole seconds,
#: and a reply takes up to ten. A start that moves further shows a clock that was set.
START_JITTER_SECONDS = 30


class SourceUnavailable(GatewayApiError):
    """Failure to get a reply from the daemon: no connection, or no complete and valid reply in time. The
    error text is for the log, and contains nothing that a subscriber sent."""


class SourceNotRunning(SourceUnavailable):
    """Failure to connect to the daemon, because no process listens at the daemon's address."""


class SourceRefused(GatewayApiError):
    """Refusal of a request by the daemon or by this machine. The error text is for the log, and contains
    nothing that a subscriber sent."""


class SourceSession(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Session that is up, as listed by its source. A source may leave the optional fields at their default
    values."""

    #: The id of the source. No other session of the source ever has this id.
    key: str
    type: SessionType
    #: Text of the subscriber: any characters that UTF-8 has, for a log line only after escaping.
    username: str
    #: In lower case, with colons.
    mac_address: str | None
    #: The interface that the session arrived on, such as `trunk0.100`.
    access_interface: str
    #: The interface of the session alone: `ppp0`. For DHCP, this may be the access interface.
    interface: str
    ip_address: str | None = None
    ipv6_address: str | None = None
    #: The network on the interface of the session, such as `2001:db8:1::/64`.
    ipv6_prefix: str | None = None
    #: The address of the gateway in that network, for the core to set. None where the source sets it.
    ipv6_gateway: str | None = None
    #: The prefixes of DHCPv6 prefix delegation (RFC 8415 section 6.3).
    delegated_prefixes: tuple[str, ...] = ()
    acct_session_id: str
    #: Epoch seconds. They stay the same while the session lasts, unless the wall clock is set; after a
    #: restart of the core, within START_JITTER_SECONDS.
    started_at: int
    #: Bits per second, 0 for no limit. None where the source was not told a rate, as by RADIUS.
    rate_down: int | None = None
    rate_up: int | None = None


#: Returns the /64 of the session with an IPv4 address, or None.
PrefixOf: TypeAlias = Callable[[str | None], IPv6Network | None]


def add_prefix(session: SourceSession, prefix_of: PrefixOf) -> SourceSession:
    """Return a copy of a session with the IPv6 /64 of the session, and with the gateway's address in this
    /64. `prefix_of` returns the /64 for the IPv4 address of the session. If there is no such /64, return the
    session unchanged."""
    prefix = prefix_of(session.ip_address)
    if prefix is None:
        return session
    return replace(session, ipv6_prefix=str(prefix), ipv6_gateway=str(prefix[1]))


class SourceTraffic(msgspec.Struct, frozen=True):
    """Byte counters of a session. The counters are modulo 2**32, because pppd 2.4.9 counts with 32 bits.
    `bytes_in` is the number of bytes received from the subscriber (RFC 2866 section 5.3)."""

    bytes_in: int
    bytes_out: int


class SourceEnd(msgspec.Struct, frozen=True):
    """End of a session, as reported by its source. `reason` is an Acct-Terminate-Cause (RFC 2866 section
    5.10) in snake_case, `admin_disconnect`, or `unknown`. `traffic` is None if the source does not report the
    traffic."""

    reason: str = UNKNOWN
    traffic: SourceTraffic | None = None


class SourceFailure(msgspec.Struct, frozen=True):
    """Failed sign-on. `at` is in epoch seconds. `reason` is a reason of FailedSignOn. `username` is None if
    the subscriber sent no user name."""

    at: float
    reason: str
    username: str | None
    mac_address: str | None
    access_interface: str


#: No sessions were listed before.
NO_SESSIONS: Mapping[str, SourceSession] = MappingProxyType({})


class Source(Protocol):
    """Source of sessions: one daemon. Thread-safe. Every call ends within a time limit that the source sets,
    and raises SourceUnavailable if the daemon does not reply. `terminate`, `serve` and `release` also raise
    SourceRefused if the daemon or the machine refuses the request."""

    #: Unique in the gateway: `accel-ppp`.
    name: str

    def list_sessions(self, former: Mapping[str, SourceSession] = NO_SESSIONS) -> Sequence[SourceSession]:
        """Return all sessions that are up, in any order. Sessions that are starting or ending are left out.
        An unchanged session is the same object as in the previous call. `former` has the sessions of the
        previous call by key: if only the key of a session can be read, the session with this key is taken
        from `former`."""

    def terminate(self, session: SourceSession) -> None:
        """Request the end of a session, and return without waiting for the end. Do nothing if the session has
        already ended. A second request for the same session uses a harder method if the daemon has such a
        method."""

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """Accept sessions of the type `type` on interfaces. The interfaces must be up. An interface may
        already be served. After an error, some of the interfaces may be served. If an interface was removed
        without a call of `release` and created again, call `release` first, because the daemon still has
        sockets of the removed interface."""

    def release(self, interface: str) -> None:
        """End the service and all sessions on an interface. Call this method before the interface is removed.
        Do nothing if the interface is not served."""

    def read_ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        """Return the ends of sessions that are no longer up, by key. A call for several sessions takes little
        more time than a call for one session."""

    def find_concern(self) -> str | None:
        """Return a health warning about the sessions of the last `list_sessions`, such as a slow mode of
        service. Return None if there is no warning. The warning is a sentence without a full stop."""
        return None


class FailureSource(Protocol):
    """Reader of the failed PPPoE sign-ons of a source. `name` is the name of the source."""

    name: str

    def read(self) -> list[SourceFailure]:
        """Return the failed sign-ons since the previous call. Raises SourceUnavailable if the source cannot
        be read."""


class RadiusClient(Protocol):
    """RADIUS client of a daemon. The daemon sends requests to a RADIUS server."""

    def read_state(self) -> tuple[DependencyState, str]:
        """Return the state of the RADIUS server, and a sentence that explains the state. The call ends within
        a time limit."""


class Terminations:
    """Keys of the sessions whose end was requested from a source within the last minute. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Steady seconds of the last request, by key.
        self._requested: dict[str, float] = {}

    def __contains__(self, key: str) -> bool:
        with self._lock:
            requested_at = self._requested.get(key)
        return requested_at is not None and self._clock.steady() - requested_at < _MAX_REQUEST_AGE_SECONDS

    def find_reason(self, key: str, default_reason: str = UNKNOWN) -> str:
        """Return ADMIN_DISCONNECT if the end of the session with the key `key` was requested within the last
        minute. Return `default_reason` otherwise."""
        return ADMIN_DISCONNECT if key in self else default_reason

    @contextmanager
    def record(self, *keys: str) -> Iterator[None]:
        """Record the requested ends of sessions before the `with` block sends the requests, because another
        thread may see the end of a session before the block returns. If the block fails, the record is
        undone."""
        now = self._clock.steady()
        with self._lock:
            earlier_requests = {
                key: at for key, at in self._requested.items() if now - at < _MAX_REQUEST_AGE_SECONDS
            }
            self._requested = earlier_requests | dict.fromkeys(keys, now)
        try:
            yield
        except (GatewayApiError, OSError):
            with self._lock:
                self._requested |= {key: earlier_requests.get(key, -math.inf) for key in keys}
            raise
