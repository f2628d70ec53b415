"""The goals, as data. Each is met by the figure of the same key that a part measures."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bench.pairs import Figure


class Bound(Enum):
    """How a ratio must be to its limit."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True)
class Goal:
    """`limit` bounds the ratio of the figure. Without another side, the ratio is the figure itself, in its
    unit."""

    part: str
    key: str
    work: str
    beside: str
    bound: Bound
    limit: float

    def is_met(self, figure: Figure) -> bool:
        if self.bound is Bound.AT_LEAST:
            return figure.ratio >= self.limit
        return figure.ratio <= self.limit


def _fast(part: str, key: str, work: str, beside: str, limit: float) -> Goal:
    return Goal(part, key, work, beside, Bound.AT_LEAST, limit)


def _small(part: str, key: str, work: str, beside: str, limit: float) -> Goal:
    return Goal(part, key, work, beside, Bound.AT_MOST, limit)


#: Pages at 100,000 sessions, by key: the name and the query.
PAGES: Mapping[str, tuple[str, str]] = {
    "interfaces": ("interfaces", "/interfaces"),
    "vlans": ("VLAN interfaces", "/interfaces/vlans"),
    "qos": ("QoS", "/qos"),
    "routes": ("routes", "/routing/routes"),
    "cgnat": ("CGNAT sessions", "/cgnat/sessions"),
    "demux": ("demux state", "/demux/state"),
}
_BARE = "bare Flask, same bytes"
_ID = "detail by id"

GOALS: tuple[Goal, ...] = (
    _fast("requests", "health-kea", "health, 16 connections", "Kea's `status-get`", 1.2),
    _fast("requests", "health-bare", "health, 16 connections", _BARE, 0.7),
    _fast("requests", "detail-kea", "detail, 16 connections", "Kea's `lease4-get`", 1.2),
    _fast("requests", "detail-bare", "detail, 16 connections", _BARE, 0.5),
    _fast("lists", "list-kea", "list of 10,000", "Kea's `lease4-get-all`", 200),
    _fast("lists", "list-dawos", "list of 10,000", "dawos-agent's list", 25),
    _fast("lists", "list-bare", "list of 10,000", _BARE, 0.9),
    _fast("lists", "list-unchanged", "list of 10,000, 304", "health", 0.5),
    _small("long_lists", "long-list", "time of a list of 100,000", "a list of 10,000", 12),
    _small("long_lists", "long-list-wait", "longest wait of health beside lists of 100,000", "", 50),
    _small("long_lists", "long-list-memory", "memory of the workers after them", "before them", 1.1),
    *(
        _small(
            "pages", f"page-{key}", f"time of a page of 100 at 100,000: {name}", "a page of sessions by id", 2
        )
        for key, (name, _) in PAGES.items()
    ),
    _small(
        "pages",
        "page-sorted",
        "time of a page of 100 at 100,000: sessions, slowest order",
        "a page of sessions by id",
        2,
    ),
    _small(
        "pages",
        "page-middle",
        "time of a page of 100 at 100,000: sessions by user name, from the middle",
        "a page of sessions by id",
        2,
    ),
    _small("searches", "search-username", "time of one of 100,000 by user name", _ID, 1.1),
    _small("searches", "search-address", "time of one of 100,000 by address", _ID, 1.1),
    _small("searches", "search-mac", "time of one of 100,000 by MAC address", _ID, 1.1),
    _small(
        "churn", "churn", "time of detail while 1,000 sessions a second come and go", "detail at rest", 1.3
    ),
    _small("tails", "tail-health", "p99 of health, 16 connections", "its median", 10),
    _small("tails", "tail-detail", "p99 of detail, 16 connections", "its median", 5),
    _small(
        "logins", "logins", "p99 of health beside a client that logs in without a pause", "without it", 1.1
    ),
    _small("streams", "stream", "time to the last of 5,000 SSE clients", "nchan's", 2),
    _small("streams", "stream-memory", "memory of an SSE client", "", 20),
    _small("streams", "stream-memory-tls", "memory of an SSE client over TLS", "", 30),
    _fast("deliveries", "deliveries", "webhook deliveries", "a loop of `requests.Session.post`", 0.8),
    _small("memory", "memory-core", "memory of a session at rest, at 100,000", "", 2),
    _small("memory", "memory-api", "memory of the API at rest", "", 110),
    _small("starts", "start-help", "`gatewayctl --help`", "", 150),
    _small("starts", "start-api", "time until a started API responds", "", 1500),
    _small("starts", "start-core", "time until a started core with 10,000 sessions listens", "", 1000),
)
#: The part without goals: the same work at these numbers of sessions.
GROWTH = "growth"
SIZES = (1_000, 10_000, 100_000)
#: In the order in which they run.
PARTS = (*dict.fromkeys(goal.part for goal in GOALS), GROWTH)


def growth_key(work: str, size: int) -> str:
    """The key of a figure of growth."""
    return f"{work} @ {size}"
