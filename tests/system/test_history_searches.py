"""Searches in a large history, of several users at a time."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.support.histories import crowd
from tests.support.stack import Api, running_stack, wait_for

#: It has no match, so it reads all.
DIGGING = "/subscribers/history?search=1&reason=none&limit=100"
NEWEST = "/subscribers/history?limit=20"
DIGGERS = 12


class Diggers:
    """Clients of one user that search again and again."""

    def __init__(self, api: Api) -> None:
        self._environment = api.environment
        self._token = api.token("operator")
        self._stopped = threading.Event()
        self.statuses: Counter[int] = Counter()

    def _dig(self) -> None:
        api = Api(self._environment)
        while not self._stopped.is_set():
            self.statuses[api.send("GET", DIGGING, token=self._token).status_code] += 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._stopped.clear()
        threads = [threading.Thread(target=self._dig, daemon=True) for _ in range(DIGGERS)]
        for thread in threads:
            thread.start()
        try:
            already = self.statuses.total()
            wait_for("the first searches to end", lambda: self.statuses.total() > already)
            yield
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join(30)


def taken(api: Api) -> float:
    """The median of the seconds that the newest sessions take."""
    times = []
    for _ in range(30):
        began = time.perf_counter()
        found = api.get(NEWEST, "admin")
        times.append(time.perf_counter() - began)
        assert found["count"] == 20
    return median(times)


def test_the_newest_take_at_most_ten_times_as_long_beside_many_searches_of_another_user(
    tmp_path: Path,
) -> None:
    state = tmp_path / "run"
    with running_stack(state):
        pass
    crowd(state / "history.sqlite", 400_000, int(time.time()))
    with running_stack(state) as (api, _):
        diggers, ratios = Diggers(api), []
        taken(api)
        for _ in range(5):
            alone = taken(api)
            with diggers.at_work():
                ratios.append(taken(api) / alone)
        assert median(ratios) <= 10, (ratios, diggers.statuses)
        assert set(diggers.statuses) <= {200, 503}
