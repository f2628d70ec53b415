"""What the API asks of the core daemon about sessions and the system, one method a call.

Long replies are taken apart only as far as the API has to look: records stay the bytes that the core
sent (`Fields`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway_api.daemon.calls import Calls, Fields, decoded
from gateway_api.wire.core import gateway as wire
from gateway_api.wire.core.configuration import (
    AccessReply,
    CheckAccess,
    EndTokens,
    GetDeniedNetworks,
    GetLogin,
    GetTokenAccess,
    LoginReply,
    TokenAccess,
)
from gateway_api.wire.core.gateway import Page

#: Before every request, so it has to leave time for what the request itself asks: together they
#: stay below the 5 s in which a client has its answer, come what may.
_ACCESS_TIMEOUT = 1.5
#: No user has a longer name.
_LONGEST_NAME = 256


class _Gone(msgspec.Struct):
    sessions: list[msgspec.Raw]


class Daemon:
    """Every method raises CoreUnavailable when the core can't be asked, or answers nonsense."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def for_request(self, id: str) -> "Daemon":
        """The same; the API records its changes under that request id."""
        return Daemon(self._calls.for_request(id))

    def health(self) -> wire.Health:
        return self._calls.reply(wire.GetHealth())

    def statistics(self) -> wire.Statistics:
        return self._calls.reply(wire.GetStatistics())

    def check_access(self, usernames: Iterable[str]) -> AccessReply:
        """Whether the API is enabled, and which of these are users now."""
        names = tuple(filter(_may_be_a_name, usernames))
        return self._calls.reply(CheckAccess(names), timeout=_ACCESS_TIMEOUT)

    def login(self, username: str) -> LoginReply:
        """What the check of a password requires. Any text may be the name."""
        name = username if _may_be_a_name(username) else ""
        return self._calls.reply(GetLogin(name), timeout=_ACCESS_TIMEOUT)

    def denied_networks(self) -> tuple[str, ...]:
        """To which no webhook is delivered, in CIDR."""
        return self._calls.reply(GetDeniedNetworks(), timeout=_ACCESS_TIMEOUT).networks

    def end_tokens(self, username: str) -> None:
        """Ends all tokens of a user, for good. Raises NotFound and NotDone."""
        self._calls.raw(EndTokens(username))

    def token_access(self) -> TokenAccess:
        """With which token the alternative profile is to be used, as of now."""
        return self._calls.reply(GetTokenAccess(), timeout=_ACCESS_TIMEOUT)

    def list_sessions(self, filter: Mapping[str, str], sort: str | None, page: Page | None) -> Fields:
        """`sessions`, `count`, and with a page `total` and `next_cursor`."""
        wanted = msgspec.convert(filter, wire.SessionFilter)
        return self._listing(wire.ListSessions(wanted, sort, page=page), "sessions")

    def session(self, id: int) -> msgspec.Raw:
        """The session's record. Raises NotFound."""
        return self._calls.fields(wire.GetSession(id), "session")["session"]

    def disconnect_session(self, id: int) -> wire.SessionSnapshot:
        """The session at its end. Raises NotFound."""
        return wire.SessionSnapshot.of(self._calls.reply(wire.DisconnectSession(id)).session)

    def disconnect_interface(self, interface: str, *, dry_run: bool) -> list[msgspec.Raw]:
        """The records of the sessions that went or, in a dry run, would go. Raises NotFound."""
        return decoded(_Gone, self._calls.raw(wire.DisconnectInterface(interface, dry_run))).sessions

    def set_session_rate(
        self, id: int, down_bps: int, up_bps: int
    ) -> tuple[wire.SessionSnapshot, wire.SessionRates]:
        """The session before, and its rates after. Raises NotFound."""
        reply = self._calls.reply(wire.SetSessionRate(id, down_bps, up_bps))
        return wire.SessionSnapshot.of(reply.before), wire.SessionRates.of(reply.after)

    def list_interfaces(self, page: Page | None) -> Fields:
        return self._listing(wire.ListInterfaces(page=page), "interfaces")

    def list_vlans(self, page: Page | None) -> Fields:
        return self._listing(wire.ListVlans(page=page), "vlans")

    def list_qos(self, page: Page | None) -> Fields:
        return self._listing(wire.ListQos(page=page), "sessions")

    def overhead_profiles(self) -> Fields:
        """`profiles` and `count`."""
        return self._calls.fields(wire.ListOverheadProfiles(), "profiles", "count")

    def bgp_summary(self) -> msgspec.Raw:
        """What FRR's `show bgp summary json` says."""
        return self._calls.fields(wire.GetBgpSummary(), "summary")["summary"]

    def list_routes(self, page: Page | None) -> Fields:
        return self._listing(wire.ListRoutes(page=page), "routes")

    def list_cgnat_sessions(self, page: Page | None) -> Fields:
        return self._listing(wire.ListCgnatSessions(page=page), "sessions")

    def demux_state(self, page: Page | None) -> Fields:
        """`vlans`, `count`, `rate_limited_total`, and with a page `total` and `next_cursor`."""
        return self._listing(wire.GetDemuxState(page=page), "vlans", "rate_limited_total")

    def _listing(self, call: wire.PagedMethod[Any], *names: str) -> Fields:
        paged = () if call.page is None else ("total", "next_cursor")
        return self._calls.fields(call, *names, "count", *paged)


def _may_be_a_name(username: str) -> bool:
    # A text as long as a request, or with half a surrogate pair, is more than a call can have.
    return len(username) <= _LONGEST_NAME and username.isprintable()
