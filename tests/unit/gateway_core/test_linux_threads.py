"""The threads of the gateway on Linux."""

import threading

import pytest

from gateway_core.gateways.linux.threads import Crew


def test_an_error_that_ends_a_thread_is_raised_where_the_gateway_waits() -> None:
    crew, working = Crew(), threading.Event()

    def fail() -> None:
        working.wait()
        raise SystemExit("no memory")

    crew.start(lambda: None, "first").join()
    thread = crew.start(fail, "second")
    assert (thread.name, thread.daemon, crew.failures.empty()) == ("second", True, True)
    working.set()
    with pytest.raises(SystemExit, match="no memory"):
        crew.wait()
