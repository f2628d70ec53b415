"""The health of what the gateway depends on is told at once, also while the core or the hub hangs."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import kill
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.prometheus import samples
from tests.support.sse import master_of
from tests.support.stack import Api, core_of, running_api, running_stack, wait_for

DETAIL = "/system/health/detail"
#: What the API finds itself.
OWN = ["hub", "certificate", "disk", "counters", "ledger"]
#: A core that hangs keeps other requests for 5 s.
AT_ONCE_SECONDS = 4

Stack = tuple[Api, "subprocess.Popen[bytes]"]
T = TypeVar("T")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One of this module alone: its core and its hub hang."""
    with running_stack(tmp_path_factory.mktemp("health") / "state", sessions=20) as running:
        running[0].token("operator")
        running[0].token("admin")
        yield running


def found(api: Api, **more: Any) -> dict[str, Any]:
    """The dependencies by name, and `whole`."""
    detail = api.get(DETAIL, **more)
    return {"whole": detail["state"], **{one.pop("name"): one for one in detail["dependencies"]}}


def gauge(api: Api, name: str) -> float:
    return samples(api)[f'gateway_dependency_state{{dependency="{name}"}}']


def at_once(ask: Callable[[], T]) -> T:
    began = time.monotonic()
    answer = ask()
    assert time.monotonic() - began < AT_ONCE_SECONDS
    return answer


@contextmanager
def hanging(process: int) -> Iterator[None]:
    kill(process, signal.SIGSTOP)

    def has_stopped() -> bool:
        states = [(task / "stat").read_text() for task in Path(f"/proc/{process}/task").iterdir()]
        return all(state.rpartition(")")[2].split()[0] == "T" for state in states)

    try:
        # A thread on another processor goes on for a moment.
        wait_for("all its threads to stop", has_stopped)
        yield
    finally:
        kill(process, signal.SIGCONT)


def test_a_core_that_hangs_is_reported_at_once_and_access_stays_as_it_was(stack: Stack) -> None:
    api, process = stack
    ended = api.new_token("operator")
    assert api.send("POST", "/auth/logout", token=ended).status_code == 200
    with hanging(core_of(process)):
        health = at_once(lambda: found(api))
        assert (health["whole"], health["core"]["state"]) == ("failed", "failed")
        assert "does not reply" in health["core"]["message"]
        assert list(health) == ["whole", "core", *OWN]
        assert gauge(api, "core") == 3
        for path in ("/health", "/system/health"):
            answer = at_once(lambda path=path: api.send("GET", path, None))  # type: ignore[misc]
            assert answer.status_code == 500
            assert answer.json() == {"status": "error", "message": "Core daemon unreachable"}
        for token in (ended, f"{api.token('operator')}x", "x"):
            assert api.send("GET", DETAIL, token=token).status_code == 401
        answer = at_once(lambda: api.send("GET", f"{DETAIL}?state=ok"))
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (400, "state")
    wait_for("the core", lambda: found(api)["core"]["state"] == "ok")


def test_a_hub_that_hangs_is_reported_at_once(stack: Stack) -> None:
    api, process = stack
    # Its threads are those of the arbiter. The workers go on.
    with hanging(master_of(process)):
        health = at_once(lambda: found(api))
        assert (health["whole"], health["hub"]["state"], health["core"]["state"]) == (
            "failed",
            "failed",
            "ok",
        )
        assert gauge(api, "hub") == 3
        with hanging(core_of(process)):
            health = at_once(lambda: found(api))
            assert [health[name]["state"] for name in ("core", "hub")] == ["failed", "failed"]
    wait_for("both", lambda: {found(api)[name]["state"] for name in ("core", "hub")} == {"ok"})


def test_without_a_core_the_detail_says_so(stack: Stack, tmp_path: Path) -> None:
    api, _ = stack
    state = Path(api.environment["GATEWAY_CA"]).parent
    with running_api(tmp_path / "core.sock", state, GATEWAY_API_RUNTIME=str(tmp_path)) as url:
        health = found(Api({**api.environment, "GATEWAY_URL": url}), token=api.token("operator"))
    assert "No core daemon is running" in health["core"]["message"]
