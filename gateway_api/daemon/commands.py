"""What the API asks of the core daemon about sessions and the system, one method a call.

Long replies are taken apart only as far as the API has to look: records stay the bytes that the core
sent (`Fields`).
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from gateway_api.daemon.calls import Calls, Fields, decoded

#: Before every request, so it has to leave time for what the request itself asks: together they
#: stay below the 5 s in which a client has its answer, come what may.
_ACCESS_TIMEOUT = 1.5
#: Before a change, only to know what was: likewise.
_GLANCE_TIMEOUT = 0.5


class Health(msgspec.Struct, frozen=True):
    uptime_seconds: int
    active_sessions: int
    product: str
    version: str


class Statistics(msgspec.Struct, frozen=True):
    active_sessions: int
    pppoe_sessions: int
    dhcp_sessions: int
    vrf_steered_sessions: int
    public_ip_sessions: int
    qos_sessions: int


class Glance(msgspec.Struct, frozen=True):
    """What tells a session from others, and how fast it is."""

    id: int
    session_type: str
    username: str
    ip_address: str
    access_interface: str
    rate_down_bps: int
    rate_up_bps: int
    started_at: int


class User(msgspec.Struct, frozen=True):
    """Tokens that were issued for another `generation` hold no more."""

    username: str
    password_hash: str
    role: Literal["admin", "operator"]
    generation: Annotated[str, msgspec.Meta(min_length=1)]


class ApiAccess(msgspec.Struct, frozen=True):
    """`token_lifetime` is seconds, `denied_networks` are those in which no webhook is delivered, in CIDR."""

    enabled: bool
    token_lifetime: int
    users: list[User]
    denied_networks: list[str] = []

    def user(self, username: str) -> User | None:
        """The user of that name, if the running configuration has one."""
        return next((user for user in self.users if user.username == username), None)


class TokenAccess(msgspec.Struct, frozen=True):
    """Of the alternative profile. A token that is too short to be one is nonsense, and lets nobody in."""

    enabled: bool
    listen_address: str
    listen_port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    auth_token: Annotated[str, msgspec.Meta(min_length=16)] | None = None


class _Gone(msgspec.Struct):
    sessions: list[msgspec.Raw]


@dataclass(frozen=True)
class Page:
    """A part of a list; `cursor` is what the page before it gave."""

    limit: int
    cursor: str | None = None


class Daemon:
    """Every method raises CoreUnavailable when the core can't be asked, or answers nonsense."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def for_request(self, id: str) -> "Daemon":
        """The same, whose changes are recorded by who makes them, under that id."""
        return Daemon(self._calls.for_request(id))

    def health(self) -> Health:
        return self._calls.typed(Health, "GetHealth")

    def statistics(self) -> Statistics:
        return self._calls.typed(Statistics, "GetStatistics")

    def api_access(self) -> ApiAccess:
        """Who may use the API, as of now."""
        return self._calls.typed(ApiAccess, "GetApiAccess", timeout=_ACCESS_TIMEOUT)

    def end_tokens(self, username: str) -> None:
        """Ends all tokens of a user, for good. Raises NotFound and NotDone."""
        self._calls.change("EndTokens", username=username)

    def token_access(self) -> TokenAccess:
        """With which token the alternative profile is to be used, as of now."""
        return self._calls.typed(TokenAccess, "GetTokenAccess", timeout=_ACCESS_TIMEOUT)

    def list_sessions(self, filter: dict[str, str], sort: str | None, page: Page | None) -> Fields:
        """`sessions`, `count`, and with a page `total` and `next_cursor`."""
        return self._listing("ListSessions", "sessions", page, filter=filter, sort=sort)

    def session(self, id: int) -> msgspec.Raw:
        """The session's record. Raises NotFound."""
        return self._calls.fields("GetSession", "session", id=id)["session"]

    def glance(self, id: int) -> Glance:
        """A session as it is before it is changed. Raises NotFound."""
        reply = self._calls.fields("GetSession", "session", timeout=_GLANCE_TIMEOUT, id=id)
        return decoded(Glance, reply["session"])

    def disconnect_session(self, id: int) -> None:
        """Raises NotFound."""
        self._calls.change("DisconnectSession", id=id)

    def disconnect_interface(self, interface: str, *, dry_run: bool) -> list[msgspec.Raw]:
        """The records of the sessions that went or, in a dry run, would go. Raises NotFound."""
        reply = self._calls.changed(_Gone, "DisconnectInterface", interface=interface, dry_run=dry_run)
        return reply.sessions

    def set_session_rate(self, id: int, down_bps: int, up_bps: int) -> None:
        """Raises NotFound."""
        self._calls.change("SetSessionRate", id=id, rate_down_bps=down_bps, rate_up_bps=up_bps)

    def list_interfaces(self, page: Page | None) -> Fields:
        return self._listing("ListInterfaces", "interfaces", page)

    def list_vlans(self, page: Page | None) -> Fields:
        return self._listing("ListVlans", "vlans", page)

    def list_qos(self, page: Page | None) -> Fields:
        return self._listing("ListQos", "sessions", page)

    def overhead_profiles(self) -> Fields:
        """`profiles` and `count`."""
        return self._calls.fields("ListOverheadProfiles", "profiles", "count")

    def bgp_summary(self) -> msgspec.Raw:
        """What FRR's `show bgp summary json` says."""
        return self._calls.fields("GetBgpSummary", "summary")["summary"]

    def list_routes(self, page: Page | None) -> Fields:
        return self._listing("ListRoutes", "routes", page)

    def list_cgnat_sessions(self, page: Page | None) -> Fields:
        return self._listing("ListCgnatSessions", "sessions", page)

    def demux_state(self, page: Page | None) -> Fields:
        """`vlans`, `count`, `rate_limited_total`, and with a page `total` and `next_cursor`."""
        return self._listing("GetDemuxState", "vlans", page, also="rate_limited_total")

    def _listing(
        self, method: str, records: str, page: Page | None, *, also: str | None = None, **parameters: Any
    ) -> Fields:
        names = [records, "count", *([also] if also else [])]
        if page is None:
            return self._calls.fields(method, *names, **parameters)
        wanted = {"limit": page.limit, "cursor": page.cursor}
        return self._calls.fields(method, *names, "total", "next_cursor", page=wanted, **parameters)
