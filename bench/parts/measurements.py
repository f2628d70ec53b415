"""The parts by name."""

from collections.abc import Callable, Iterator, Mapping

from bench.pairs import Figure
from bench.parts import (
    churn,
    deliveries,
    growth,
    lists,
    logins,
    long_lists,
    memory,
    pages,
    requests,
    searches,
    starts,
    streams,
    tails,
)
from bench.parts.plan import Plan

MEASUREMENTS: Mapping[str, Callable[[Plan], Iterator[tuple[str, Figure]]]] = {
    "requests": requests.measured,
    "lists": lists.measured,
    "long_lists": long_lists.measured,
    "pages": pages.measured,
    "searches": searches.measured,
    "churn": churn.measured,
    "tails": tails.measured,
    "logins": logins.measured,
    "streams": streams.measured,
    "deliveries": deliveries.measured,
    "memory": memory.measured,
    "starts": starts.measured,
    "growth": growth.measured,
}
