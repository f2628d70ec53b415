"""Source of sessions: a daemon that terminates the connections of subscribers, such as accel-ppp.

The table of the source is the truth: a session that it does not list has ended. A source that does not reply
says nothing: its sessions are stale, and not gone.
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
_REQUEST_SECONDS = 60.0
#: Seconds by which the start of a session may differ after a restart of the core: uptimes are whole seconds,
#: and a reply takes up to ten. A start that moves further shows a clock that was set.
START_JITTER_SECONDS = 30


class SourceUnavailable(GatewayApiError):
    """Failure to reach the daemon, or to get its reply in time, whole and in its format. The text is for the
    log, and has nothing that a subscriber sent."""


class SourceNotRunning(SourceUnavailable):
    """Failure to connect: nothing listens at the address of the daemon."""


class SourceRefused(GatewayApiError):
    """Refusal of a request by the daemon or by this machine. The text is for the log, and has nothing that a
    subscriber sent."""


class SourceSession(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Session that is up, as its source lists it. A source need not know the fields with a default."""

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
    """Return the session with its /64, of which the gateway has the first address."""
    prefix = prefix_of(session.ip_address)
    if prefix is None:
        return session
    return replace(session, ipv6_prefix=str(prefix), ipv6_gateway=str(prefix[1]))


class SourceTraffic(msgspec.Struct, frozen=True):
    """Bytes that a source has counted in a session, modulo 2**32: pppd 2.4.9 has no more bits. `bytes_in`
    came from the subscriber (RFC 2866 section 5.3)."""

    bytes_in: int
    bytes_out: int


class SourceEnd(msgspec.Struct, frozen=True):
    """End of a session, as its source tells it. `reason` is an Acct-Terminate-Cause (RFC 2866 section 5.10)
    in snake_case, `admin_disconnect`, or `unknown`. `traffic` is None if the source does not tell it."""

    reason: str = UNKNOWN
    traffic: SourceTraffic | None = None


class SourceFailure(msgspec.Struct, frozen=True):
    """Failed sign-on. `at` is epoch seconds, `reason` as in FailedSignOn; `username` as in SourceSession, or
    None if the subscriber gave none."""

    at: float
    reason: str
    username: str | None
    mac_address: str | None
    access_interface: str


#: No sessions were listed before.
NO_SESSIONS: Mapping[str, SourceSession] = MappingProxyType({})


class Source(Protocol):
    """Sessions of one daemon. Thread-safe. Every call ends by a deadline of the source, and raises
    SourceUnavailable; `terminate`, `serve` and `release` raise SourceRefused too."""

    #: Unique in the gateway: `accel-ppp`.
    name: str

    def list_sessions(self, former: Mapping[str, SourceSession] = NO_SESSIONS) -> Sequence[SourceSession]:
        """Return all sessions that are up, in any order, without those that start or end. An unchanged
        session is the same object as in the call before. `former` has the sessions of the last list by key:
        a session of which only the key can be read is listed as it was there."""

    def terminate(self, session: SourceSession) -> None:
        """Request the end of a session, and do not wait for it. A session that is gone is no error. Another
        request is more forceful, if the source has a way."""

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """Accept sessions of a type on interfaces, which are up. After an error, some of them may be served.
        An interface that is served already is no error. If an interface was removed without `release`, and
        created again, call `release` first: the daemon has sockets of the removed interface."""

    def release(self, interface: str) -> None:
        """End the service on an interface, with its sessions. Call it before the interface is removed. An
        interface that is not served is no error."""

    def read_ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        """Return the ends of sessions that are no longer up, by key. Several ends take little more time than
        one."""

    def find_concern(self) -> str | None:
        """Return why the last listed sessions are served worse than they could be, for health: a sentence
        without its full stop. None without a reason."""
        return None


class FailureSource(Protocol):
    """Failed sign-ons of PPPoE. `name` is that of the source."""

    name: str

    def read(self) -> list[SourceFailure]:
        """Return the failures since the last call. Raises SourceUnavailable."""


class RadiusClient(Protocol):
    """Daemon that sends requests to a RADIUS server."""

    def look(self) -> tuple[DependencyState, str]:
        """Return the state of the server, and a sentence. Ends by a deadline."""


class Terminations:
    """Keys of the sessions whose end was requested at a source within the last minute. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Steady seconds of the last request, by key.
        self._requested: dict[str, float] = {}

    def __contains__(self, key: str) -> bool:
        with self._lock:
            at = self._requested.get(key)
        return at is not None and self._clock.steady() - at < _REQUEST_SECONDS

    def find_reason(self, key: str, otherwise: str = UNKNOWN) -> str:
        """Return ADMIN_DISCONNECT for a session whose end was requested, or another reason."""
        return ADMIN_DISCONNECT if key in self else otherwise

    @contextmanager
    def note(self, *keys: str) -> Iterator[None]:
        """Note a request before the block makes it: another thread may see the end first. If the block
        fails, only earlier requests count."""
        now = self._clock.steady()
        with self._lock:
            earlier = {key: at for key, at in self._requested.items() if now - at < _REQUEST_SECONDS}
            self._requested = earlier | dict.fromkeys(keys, now)
        try:
            yield
        except (GatewayApiError, OSError):
            with self._lock:
                self._requested |= {key: earlier.get(key, -math.inf) for key in keys}
            raise
