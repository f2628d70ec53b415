"""The parts by name."""

from collections.abc import Callable, Iterator, Mapping

from tests.bench.pairs import Figure
from tests.bench.parts import requests
from tests.bench.parts.plan import Plan

MEASUREMENTS: Mapping[str, Callable[[Plan], Iterator[tuple[str, Figure]]]] = {
    "requests": requests.measured,
}
