"""A hundred thousand sessions: everything that works for five hundred works, and in time."""

import time
from collections.abc import Iterator
from statistics import median

import pytest

from tests.support.sse import resident_megabytes, workers_of
from tests.support.stack import Api, running_stack, wait_for

SESSIONS = 100_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, list[int]]]:
    """The API, and its workers."""
    with running_stack(tmp_path_factory.mktemp("large"), sessions=SESSIONS, arrivals=10) as (api, process):
        yield api, workers_of(process)


def seconds(api: Api, path: str) -> float:
    """Another reader of the same worker may have to be waited for."""
    began = time.monotonic()
    while (answer := api.send("GET", path)).status_code == 503:
        time.sleep(int(answer.headers["Retry-After"]))
        began = time.monotonic()
    assert answer.status_code == 200
    return time.monotonic() - began


def test_the_list_has_every_session_once_and_each_is_found(large: tuple[Api, list[int]]) -> None:
    api, _ = large
    data = api.get("/subscribers")
    assert data["count"] == len({item["id"] for item in data["sessions"]}) > SESSIONS * 0.9
    (wanted,) = api.get("/subscribers", params={"limit": "1", "sort": "-id"})["sessions"]
    assert api.get("/subscribers", params={"username": wanted["username"]})["sessions"] == [wanted]
    assert api.get(f"/subscribers/{wanted['id']}")["ip_address"] == wanted["ip_address"]
    assert api.send("DELETE", f"/subscribers/{wanted['id']}").status_code == 200
    assert api.send("GET", f"/subscribers/{wanted['id']}").status_code == 404


def test_one_session_and_one_page_do_not_cost_what_the_list_costs(large: tuple[Api, list[int]]) -> None:
    api, _ = large
    for path in (
        "/subscribers?username=nobody",
        "/subscribers?limit=100",
        "/interfaces?limit=100",
        "/subscribers/summary",
    ):
        assert median(seconds(api, path) / seconds(api, "/subscribers") for _ in range(5)) < 1 / 5, path


def test_workers_return_the_memory_of_lists(large: tuple[Api, list[int]]) -> None:
    api, workers = large
    # Any worker may serve the next request. A compressed list is too small to see.
    api.session.headers.update({"Connection": "close", "Accept-Encoding": "identity"})

    def megabytes() -> float:
        return sum(map(resident_megabytes, workers))

    before = megabytes()
    for _ in range(8):
        seconds(api, "/subscribers")
    wait_for("the memory to be returned", lambda: megabytes() < 1.1 * before)
