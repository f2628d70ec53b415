"""What a process does that may have only a few file descriptors."""

import os
import resource
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway_contract.base.process import compute_max_clients
from tests.support.stack import Api, running_stack

FEW = 256


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """A gateway each of whose processes may have 256 descriptors."""
    state = tmp_path_factory.mktemp("small")
    with running_stack(state, sessions=20, wrap=("prlimit", f"--nofile={FEW}:{FEW}")) as (api, _):
        yield api, state


def assert_serves(api: Api, state: Path) -> None:
    for _ in range(20):
        api.session.close()
        assert api.send("GET", "/health", None).status_code == 200
        assert api.send("GET", "/subscribers").status_code == 200
    log = (state / "log").read_text()
    assert "Too many open files" not in log
    assert "Traceback" not in log


def test_who_holds_connections_makes_room_for_who_asks(small: tuple[Api, Path]) -> None:
    api, state = small
    parts = urlsplit(api.url)
    with ExitStack() as held:
        for _ in range(3 * FEW):
            held.enter_context(socket.create_connection((parts.hostname, parts.port)))
        assert_serves(api, state)


def test_streams_beyond_the_places_are_refused_and_the_others_served(small: tuple[Api, Path]) -> None:
    api, state = small
    seen: Counter[int] = Counter()
    with ExitStack() as open_streams:
        for _ in range(FEW):
            answer = open_streams.enter_context(
                api.send("GET", "/events/subscribers", stream=True, headers={"Connection": "close"})
            )
            seen[answer.status_code] += 1
        assert set(seen) == {200, 429}
        assert_serves(api, state)


@pytest.fixture
def limited() -> Iterator[None]:
    """This process may have 1024 descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("limited")
def test_descriptors_that_a_process_has_already_leave_fewer_places() -> None:
    before = compute_max_clients(10_000)
    with ExitStack() as held:
        for _ in range(100):
            for descriptor in os.pipe():
                held.callback(os.close, descriptor)
        assert compute_max_clients(10_000) == before - 100
        assert compute_max_clients(10) == 10
    assert compute_max_clients(10_000) == before
    # One that has almost all of them has one.
    with ExitStack() as held:
        while len(list(Path("/proc/self/fd").iterdir())) < 1000:
            for descriptor in os.pipe():
                held.callback(os.close, descriptor)
        assert compute_max_clients(10_000) == 1
