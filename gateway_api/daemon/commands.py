"""What the API asks of the core daemon, one method a call of the interface file.

Long replies are taken apart only as far as the API has to look: records stay the bytes that the core
sent (`Fields`). The errors of the wire end here and become those of `errors.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from gateway_api.errors import AnswerTooLarge, CoreUnavailable, Invalid, NotFound, Problem
from gateway_api.varlink.client import Client, Unreachable
from gateway_api.varlink.message import ErrorReply

INTERFACE = "org.gatewayapi.core"

#: Before every request, so it has to leave time for what the request itself asks: together they
#: stay below the 5 s in which a client has its answer, come what may.
_ACCESS_TIMEOUT = 1.5

#: Fields of an answer, each still JSON bytes.
Fields: TypeAlias = dict[str, msgspec.Raw]

T = TypeVar("T")


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


class User(msgspec.Struct, frozen=True):
    username: str
    password_hash: str
    role: Literal["admin", "operator"]


class ApiAccess(msgspec.Struct, frozen=True):
    """`token_lifetime` is seconds."""

    enabled: bool
    token_lifetime: int
    users: list[User]

    def user(self, username: str) -> User | None:
        """The user of that name, if the running configuration has one."""
        return next((user for user in self.users if user.username == username), None)


@dataclass(frozen=True)
class Page:
    """A part of a list; `cursor` is what the page before it gave."""

    limit: int
    cursor: str | None = None


class Daemon:
    """Every method raises CoreUnavailable when the core can't be asked, or answers nonsense."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def health(self) -> Health:
        return self._typed(Health, "GetHealth")

    def statistics(self) -> Statistics:
        return self._typed(Statistics, "GetStatistics")

    def api_access(self) -> ApiAccess:
        """Who may use the API, as of now."""
        return self._typed(ApiAccess, "GetApiAccess", timeout=_ACCESS_TIMEOUT)

    def list_sessions(self, filter: dict[str, str], sort: str | None, page: Page | None) -> Fields:
        """`sessions`, `count`, and with a page `total` and `next_cursor`."""
        return self._listing("ListSessions", "sessions", page, filter=filter, sort=sort)

    def session(self, id: int) -> msgspec.Raw:
        """The session's record. Raises NotFound."""
        return self._fields("GetSession", "session", id=id)["session"]

    def disconnect_session(self, id: int) -> None:
        """Raises NotFound."""
        self._call("DisconnectSession", id=id)

    def disconnect_interface(self, interface: str, *, dry_run: bool) -> list[msgspec.Raw]:
        """The records of the sessions that went or, in a dry run, would go."""
        reply = self._fields("DisconnectInterface", "sessions", interface=interface, dry_run=dry_run)
        return _decoded(list[msgspec.Raw], reply["sessions"])

    def set_session_rate(self, id: int, down_bps: int, up_bps: int) -> None:
        """Raises NotFound."""
        self._call("SetSessionRate", id=id, rate_down_bps=down_bps, rate_up_bps=up_bps)

    def configuration(self) -> tuple[dict[str, msgspec.Raw], str]:
        """The running configuration's sections, secrets masked, and its entity tag."""
        reply = self._fields("GetConfiguration", "configuration", "etag")
        return (
            _decoded(dict[str, msgspec.Raw], reply["configuration"]),
            _decoded(str, reply["etag"]),
        )

    def list_interfaces(self, page: Page | None) -> Fields:
        return self._listing("ListInterfaces", "interfaces", page)

    def list_vlans(self, page: Page | None) -> Fields:
        return self._listing("ListVlans", "vlans", page)

    def list_qos(self, page: Page | None) -> Fields:
        return self._listing("ListQos", "sessions", page)

    def overhead_profiles(self) -> Fields:
        """`profiles` and `count`."""
        return self._fields("ListOverheadProfiles", "profiles", "count")

    def bgp_summary(self) -> msgspec.Raw:
        """What FRR's `show bgp summary json` says."""
        return self._fields("GetBgpSummary", "summary")["summary"]

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
            return self._fields(method, *names, **parameters)
        wanted = {"limit": page.limit, "cursor": page.cursor}
        return self._fields(method, *names, "total", "next_cursor", page=wanted, **parameters)

    def _fields(self, method: str, *names: str, **parameters: Any) -> Fields:
        held = _decoded(dict[str, msgspec.Raw], self._call(method, **parameters))
        # A field that may be null may be left out as well.
        held.setdefault("next_cursor", msgspec.Raw(b"null"))
        try:
            return {name: held[name] for name in names}
        except KeyError as error:
            raise CoreUnavailable(f"the reply to {method} lacks {error}") from error

    def _typed(self, type: type[T], method: str, *, timeout: float | None = None) -> T:
        return _decoded(type, self._call(method, timeout=timeout))

    def _call(self, method: str, *, timeout: float | None = None, **parameters: Any) -> msgspec.Raw:
        with _translated(bool(parameters)):
            return self._client.call(f"{INTERFACE}.{method}", parameters, timeout=timeout)


@contextmanager
def _translated(had_parameters: bool) -> Iterator[None]:
    try:
        yield
    except Unreachable as error:
        raise CoreUnavailable(str(error)) from error
    except ErrorReply as error:
        match error.name:
            case "org.gatewayapi.core.SessionNotFound":
                raise NotFound("No such session") from error
            case "org.gatewayapi.core.ReplyTooLarge":
                raise AnswerTooLarge("The whole list is too large for one answer; use limit") from error
            case "org.varlink.service.InvalidParameter" if had_parameters:
                raise Invalid(_problem(error)) from error
            case _:
                raise CoreUnavailable(f"the core answered with {error.name}") from error


def _problem(error: ErrorReply) -> Problem:
    parameter = _decoded(dict[str, Any], error.parameters).get("parameter")
    # What the core calls page.cursor, the request calls cursor.
    name = parameter.rpartition(".")[2] if isinstance(parameter, str) else ""
    message = "must be what the last page gave as next_cursor" if name == "cursor" else "is invalid"
    return Problem(name, "invalid", message)


def _decoded(type: type[T], raw: msgspec.Raw) -> T:
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CoreUnavailable(f"a reply that isn't as the interface says: {error}") from error
