"""The reply of accel-ppp 1.14 to `show stat`: its uptime, and what it has counted of its RADIUS servers."""

import re
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import NamedTuple

from gateway_contract.base.texts import utc_text
from gateway_contract.core.health import DependencyState
from gateway_core.gateways.linux.entries import EntryReader
from gateway_core.gateways.linux.sources.accel_formats import UnreadableReply
from gateway_core.gateways.linux.sources.source import SourceUnavailable

#: As accel-pppd/radius/serv.c prints it: `radius(1, 192.0.2.1):`. A server without a time-out for failures
#: has no `state` there.
_SECTION = re.compile(r"(\w[\w -]*)(?:\([^)]*\))?:\s*")
_LINE = re.compile(r"  ([^:]+): (.*)")
_UPTIME = re.compile(r"uptime: (\d+)\.(\d+):(\d+):(\d+)\s")
_NO_UPTIME = "the reply to `show stat` does not start with the uptime"
_NO_NUMBERS = "a section of RADIUS in `show stat` has no numbers"
_SERVERS = EntryReader(
    "accel-ppp",
    "radius_server",
    "the RADIUS servers in `show stat` of accel-ppp",
    "the health of RADIUS is that of the others",
)
_KINDS = ("auth", "acct", "interim")
_LOST = "lost(total/5m/1m)"
#: Seconds over which accel-ppp counts `lost_lately`.
_LATELY = 300.0


class RadiusServer(NamedTuple):
    """One server. Numbers are of transmissions of requests since accel-ppp started."""

    #: accel-ppp sends nothing to it for a while: too many requests timed out in a row.
    is_given_up: bool
    sent: int
    lost: int
    #: Lost in the last five minutes.
    lost_lately: int
    #: Requests without a response until now.
    waiting: int

    @property
    def responses(self) -> int:
        # The numbers are not of one moment.
        return max(self.sent - self.lost - self.waiting, 0)


class AccelPppStatistics:
    """A `RadiusClient`. accel-ppp does not tell when a response came. One came between two looks if their
    number grew. `ask` gives its `show stat`, and raises SourceUnavailable; `wall` gives epoch seconds."""

    def __init__(self, ask: Callable[[], bytes], wall: Callable[[], float]) -> None:
        self._ask = ask
        self._wall = wall
        self._responses: int | None = None
        self._last_response: float | None = None
        #: The last response, or the first look.
        self._quiet_since = wall()

    def look(self) -> tuple[DependencyState, str]:
        try:
            servers = radius_servers(self._ask())
        except SourceUnavailable:
            return (
                DependencyState.UNKNOWN,
                "accel-ppp does not reply, so nothing tells whether RADIUS responds.",
            )
        except UnreadableReply:
            return DependencyState.UNKNOWN, "accel-ppp says nothing readable of its RADIUS requests."
        if not servers:
            return DependencyState.FAILED, "accel-ppp runs without its RADIUS module and has to be restarted."
        return self._judge(servers)

    def _judge(self, servers: list[RadiusServer]) -> tuple[DependencyState, str]:
        now, responses = self._wall(), sum(server.responses for server in servers)
        if self._responses is not None and responses > self._responses:
            self._last_response = self._quiet_since = now
        # Less than before after a restart of accel-ppp.
        self._responses = responses
        last = "the core has seen no response since it started"
        if self._last_response is not None:
            last = f"the last response came at {utc_text(self._last_response)}"
        lost = sum(server.lost_lately for server in servers)
        requests = f"{lost} request{'' if lost == 1 else 's'} timed out in the last 5 minutes"
        if all(server.is_given_up for server in servers):
            return DependencyState.FAILED, f"accel-ppp has given the server up: {requests}, and {last}."
        if lost and (not responses or now - self._quiet_since > _LATELY):
            return DependencyState.FAILED, f"The server does not respond: {requests}, and {last}."
        if lost:
            return DependencyState.DEGRADED, f"{requests}, and {last}."
        if not responses:
            return DependencyState.UNKNOWN, "No request timed out, and none has a response yet."
        return DependencyState.OK, f"No request timed out in the last 5 minutes, and {last}."


def uptime(reply: bytes) -> int:
    """Seconds since accel-ppp started, in a reply to `show stat`. Raises UnreadableReply."""
    found = _UPTIME.match(reply.decode("ascii", "replace"))
    if found is None:
        raise UnreadableReply(_NO_UPTIME)
    days, hours, minutes, seconds = map(int, found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def radius_servers(reply: bytes) -> list[RadiusServer]:
    """Return the servers in a reply to `show stat`, none without the module `radius`. Raises
    UnreadableReply."""
    text = reply.decode("ascii", "replace")
    if not text.startswith("uptime:"):
        raise UnreadableReply(_NO_UPTIME)
    sections = list(enumerate(_sections(text)))
    servers = _SERVERS.read(sections, lambda section: _server(section[1]), name=itemgetter(0))
    if sections and not servers:
        raise UnreadableReply(_NO_NUMBERS)
    return servers


def _sections(text: str) -> Iterator[dict[str, str]]:
    values: dict[str, str] | None = None
    for line in text.splitlines():
        if section := _SECTION.fullmatch(line):
            if values is not None:
                yield values
            values = {} if section[1] == "radius" else None
        elif values is not None and (pair := _LINE.fullmatch(line)):
            values[pair[1]] = pair[2].strip()
    if values is not None:
        yield values


def _server(values: dict[str, str]) -> RadiusServer:
    try:
        lost = [values.get(f"{kind} {_LOST}", "0/0/0").split("/") for kind in _KINDS]
        return RadiusServer(
            is_given_up=values.get("state", "active") != "active",
            sent=sum(int(values.get(f"{kind} sent", "0")) for kind in _KINDS),
            lost=sum(int(total) for total, _, _ in lost),
            lost_lately=sum(int(lately) for _, lately, _ in lost),
            waiting=int(values.get("request count", "0")),
        )
    except ValueError as error:
        raise UnreadableReply(_NO_NUMBERS) from error
