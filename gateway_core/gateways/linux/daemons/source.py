"""A source of sessions: a daemon that terminates the connections of subscribers, such as accel-ppp.

The source's table is the truth: a session that it does not list has ended. A source that does not reply says
nothing: its sessions are stale, and not gone.
"""

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

#: The reason of an end that nothing is known of.
UNKNOWN = "unknown"
#: The reason of an end by request.
ADMIN_DISCONNECT = "admin_disconnect"
#: The reason of the ends of all sessions of a former boot.
NAS_REBOOT = "nas_reboot"
#: Seconds after a request in which the end of the session is its work.
_WORKS = 60.0
#: Seconds by which the start of a session may differ after a restart of the core: uptimes are whole seconds,
#: and a reply takes up to ten. A start that moves further shows a clock that was set.
START_JITTER = 30


class SourceUnavailable(GatewayApiError):
    """The daemon cannot be reached, or does not reply in time, whole and in its format. The text is for the
    log, and has nothing that a subscriber sent."""


class SourceNotRunning(SourceUnavailable):
    """Nothing listens where the daemon would."""


class SourceRefused(GatewayApiError):
    """The request cannot be done: the daemon says so, or this machine does. The text is for the log, as
    above."""


class SourceSession(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A session that is up, as its source knows it. A field with a default is one that a source need not
    tell."""

    #: The source's own id. No other session of the source ever has it.
    key: str
    type: SessionType
    #: As the subscriber sent it: any characters that UTF-8 has, for a log line only after escaping.
    username: str
    #: In lower case, with colons.
    mac_address: str | None
    #: The interface that the session arrived on, such as `trunk0.100`.
    access_interface: str
    #: The session's own: `ppp0`. For DHCP, it may be the access interface.
    interface: str
    ip_address: str | None = None
    ipv6_address: str | None = None
    #: The network on the session's interface, such as `2001:db8:1::/64`.
    ipv6_prefix: str | None = None
    #: The gateway's own address in that network, for the core to set. None where the source does.
    ipv6_gateway: str | None = None
    #: Those of DHCPv6 (RFC 8415 section 6.3).
    delegated_prefixes: tuple[str, ...] = ()
    acct_session_id: str
    #: Epoch seconds. It stays the same while the session lasts, unless the wall clock is set; after a restart
    #: of the core, it is the same within START_JITTER.
    started_at: int
    #: Bits per second, 0 for no limit. None where the source was not told a rate, as by RADIUS.
    rate_down: int | None = None
    rate_up: int | None = None


#: The /64 of the session with an IPv4 address, if there is one.
PrefixOf: TypeAlias = Callable[[str | None], IPv6Network | None]


def with_prefix(session: SourceSession, prefix_of: PrefixOf) -> SourceSession:
    """Return the session with its /64, whose first address is the gateway's."""
    prefix = prefix_of(session.ip_address)
    if prefix is None:
        return session
    return replace(session, ipv6_prefix=str(prefix), ipv6_gateway=str(prefix[1]))


class SourceTraffic(msgspec.Struct, frozen=True):
    """The bytes that a source has counted in a session, modulo 2**32: pppd 2.4.9 has no more bits. `bytes_in`
    came from the subscriber (RFC 2866 section 5.3)."""

    bytes_in: int
    bytes_out: int


class SourceEnd(msgspec.Struct, frozen=True):
    """The end of a session, as its source tells it. `reason` is an Acct-Terminate-Cause (RFC 2866 section
    5.10) in snake_case, `admin_disconnect`, or `unknown`. `traffic` is None where it does not tell."""

    reason: str = UNKNOWN
    traffic: SourceTraffic | None = None


class SourceFailure(msgspec.Struct, frozen=True):
    """A sign-on that failed. `at` is epoch seconds, `reason` as in FailedSignOn; `username` as in
    SourceSession, or None if the subscriber gave none."""

    at: float
    reason: str
    username: str | None
    mac_address: str | None
    access_interface: str


#: No sessions were listed before.
NONE_BEFORE: Mapping[str, SourceSession] = MappingProxyType({})


class Source(Protocol):
    """Any thread may call any method. Every call ends by a deadline of the source. Raises SourceUnavailable;
    `terminate`, `serve` and `release` raise SourceRefused too."""

    #: Unique in the gateway: `accel-ppp`.
    name: str

    def sessions(self, former: Mapping[str, SourceSession] = NONE_BEFORE) -> Sequence[SourceSession]:
        """Return all sessions that are up, in any order: neither those that start nor those that end. A
        session that did not change is the same object as in the call before. `former` has sessions as they
        were listed last, by key: one of which the key alone can be read now is listed as it was."""

    def terminate(self, session: SourceSession) -> None:
        """Requests the end of a session, and does not wait for it. It is no error if there is no such session
        any more. To request it again is more forceful, if the source has a way."""

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """Accept sessions of a type on interfaces, which are up; after an error, perhaps on some of them. It
        is no error if the source does so already. If an interface was removed without `release`, and created
        again, call `release` first: the daemon has sockets of the removed one."""

    def release(self, interface: str) -> None:
        """End the service on an interface, with its sessions. Call it before the interface is removed. It is
        no error if the interface is not served."""

    def ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        """Return the ends of sessions that are up no longer, by key. Several take little more time than
        one."""

    def concern(self) -> str | None:
        """Return the reason why the service of the sessions that were up last is worse than it may be, for
        health: a sentence without its end. None without one."""
        return None


class FailureSource(Protocol):
    """A source of failed sign-ons by PPPoE."""

    #: Of the source.
    name: str

    def read(self) -> list[SourceFailure]:
        """Return the failures since the last call. Raises SourceUnavailable."""


class RadiusClient(Protocol):
    """A daemon that sends requests to a RADIUS server."""

    def look(self) -> tuple[DependencyState, str]:
        """Return the state of the server, and a sentence. Ends by a deadline."""


class Terminations:
    """The keys of sessions whose end was requested at a source within the last minute, which is the reason of
    their ends. Any thread may call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Steady seconds of the last request.
        self._requested: dict[str, float] = {}

    def __contains__(self, key: str) -> bool:
        with self._lock:
            at = self._requested.get(key)
        return at is not None and self._clock.steady() - at < _WORKS

    @contextmanager
    def requesting(self, *keys: str) -> Iterator[None]:
        """Notes a request before the block makes it: another thread may see the end first. If the block
        fails, only earlier requests count."""
        now = self._clock.steady()
        with self._lock:
            earlier = {key: at for key, at in self._requested.items() if now - at < _WORKS}
            self._requested = earlier | dict.fromkeys(keys, now)
        try:
            yield
        except (GatewayApiError, OSError):
            with self._lock:
                for key in keys:
                    self._requested.pop(key, None)
                    if key in earlier:
                        self._requested[key] = earlier[key]
            raise
