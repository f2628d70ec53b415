"""The RADIUS servers of accel-ppp 1.14: the sections `radius(1, 192.0.2.1):` of `show stat`, as
accel-pppd/radius/serv.c prints them. A server without a time-out for failures has no `state` there."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gateway_api.core.gateways.linux.sources.accel_formats import UnreadableReply

_SECTION = re.compile(r"(\w[\w -]*)(?:\([^)]*\))?:\s*")
_LINE = re.compile(r"  ([^:]+): (.*)")
_KINDS = ("auth", "acct", "interim")
_LOST = "lost(total/5m/1m)"


class RadiusServer(NamedTuple):
    """One server. Numbers are of transmissions of requests since accel-ppp started."""

    #: accel-ppp sends nothing to it for a while: too many requests timed out in a row.
    is_given_up: bool
    sent: int
    lost: int
    #: Lost in the last five minutes.
    lost_lately: int
    #: Requests without an answer until now.
    waiting: int

    @property
    def answered(self) -> int:
        # The numbers are not of one moment.
        return max(self.sent - self.lost - self.waiting, 0)


def radius_servers(reply: bytes) -> list[RadiusServer]:
    """The servers in a reply to `show stat`, none without the module `radius`. Raises UnreadableReply."""
    text = reply.decode("ascii", "replace")
    if not text.startswith("uptime:"):
        raise UnreadableReply("the reply to `show stat` does not start with the uptime")
    return [_server(values) for values in _sections(text)]


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
        raise UnreadableReply("a section of RADIUS in `show stat` has no numbers") from error
