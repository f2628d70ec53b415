"""What a client learns of the health of what the gateway depends on, also while a dependency hangs."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import kill
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from gateway_api.wire.core.health import DependencyState
from tests.support.faulty_core import DEPENDENCIES, faulty_gateway
from tests.support.measuring import within
from tests.support.prometheus import samples
from tests.support.sse import master_of
from tests.support.stack import Api, core_of, running_api, running_stack, wait_for

DETAIL = "/system/health/detail"
#: What the API finds itself.
OWN = ["hub", "certificate", "disk", "counters", "ledger"]

Stack = tuple[Api, "subprocess.Popen[bytes]"]
T = TypeVar("T")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One of this module alone: its core and its hub hang."""
    with running_stack(tmp_path_factory.mktemp("health") / "state", sessions=20) as running:
        running[0].token("operator")
        running[0].token("admin")
        yield running


@pytest.fixture(scope="module")
def faulty(api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(api, state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


def found(api: Api, **more: Any) -> dict[str, Any]:
    """The dependencies by name, and `whole`."""
    detail = api.get(DETAIL, **more)
    return {"whole": detail["state"], **{one.pop("name"): one for one in detail["dependencies"]}}


def gauges(api: Api) -> dict[str, float]:
    """The states in the metrics, by dependency."""
    prefix = 'gateway_dependency_state{dependency="'
    return {
        series.removeprefix(prefix).removesuffix('"}'): value
        for series, value in samples(api).items()
        if series.startswith(prefix)
    }


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


def within_a_second(api: Api, ask: Callable[[], T]) -> T:
    """What `ask` returns. What a request takes that asks nobody is the machine's."""
    began = time.monotonic()
    for _ in range(2):
        assert api.send("GET", "/system/version", None).status_code == 200
    return within(1 + time.monotonic() - began, ask)


@pytest.mark.parametrize("role", ["admin", "operator"])
def test_any_role_sees_what_the_gateway_depends_on(api: Api, role: str) -> None:
    names = [one["name"] for one in api.get(DETAIL, role)["dependencies"]]
    assert names == ["core", "lab", "radius", "frr", "clock", *OWN]


def test_the_detail_requires_a_token_and_has_no_parameters(api: Api) -> None:
    assert api.send("GET", DETAIL, None).status_code == 401
    assert api.send("GET", f"{DETAIL}?state=ok").status_code == 400


def test_the_lab_says_that_it_is_one(api: Api) -> None:
    health = found(api)
    assert [health[name]["state"] for name in ("core", "lab", "radius", "frr", "clock")] == [
        *("ok", "ok"),
        *("unused", "unused", "unused"),
    ]
    assert "simulation" in health["radius"]["message"]


def test_the_whole_is_as_bad_as_the_worst(faulty: Api) -> None:
    detail = faulty.get(DETAIL)
    assert detail["dependencies"][1:6] == list(msgspec.to_builtins(DEPENDENCIES))
    assert detail["state"] == "failed"


def test_metrics_have_a_gauge_for_each_dependency(faulty: Api) -> None:
    severities = {"ok": 0, "unused": 0, "unknown": 1, "degraded": 2, "failed": 3}
    health = faulty.get(DETAIL)["dependencies"]
    assert gauges(faulty) == {one["name"]: severities[one["state"]] for one in health}
    assert {one["state"] for one in health} == set(DependencyState)


def test_a_core_that_hangs_is_reported_within_a_second(stack: Stack) -> None:
    api, process = stack
    with hanging(core_of(process)):
        health = within_a_second(api, lambda: found(api))
        assert (health["whole"], health["core"]["state"]) == ("failed", "failed")
        assert "does not reply" in health["core"]["message"]
        assert list(health) == ["whole", "core", *OWN]
        assert gauges(api).keys() == {"core", *OWN}
        assert gauges(api)["core"] == 3
    wait_for("the core", lambda: found(api)["core"]["state"] == "ok")


@pytest.mark.parametrize("path", ["/health", "/system/health"])
def test_health_of_a_core_that_hangs_is_500_within_a_second(stack: Stack, path: str) -> None:
    api, process = stack
    with hanging(core_of(process)):
        answer = within_a_second(api, lambda: api.send("GET", path, None))
    assert answer.status_code == 500
    assert answer.json() == {"status": "error", "message": "Core daemon unreachable"}
    wait_for("the core", lambda: found(api)["core"]["state"] == "ok")


def test_while_the_core_hangs_no_other_token_is_enough(stack: Stack) -> None:
    api, process = stack
    ended = api.new_token("operator")
    assert api.send("POST", "/auth/logout", token=ended).status_code == 200
    with hanging(core_of(process)):
        for token in (ended, f"{api.token('operator')}x", "x"):
            assert api.send("GET", DETAIL, token=token).status_code == 401
    wait_for("the core", lambda: found(api)["core"]["state"] == "ok")


def test_while_the_core_hangs_a_wrong_parameter_is_400_at_once(stack: Stack) -> None:
    api, process = stack
    token = api.token("operator")
    with hanging(core_of(process)):
        answer = within_a_second(api, lambda: api.send("GET", f"{DETAIL}?state=ok", token=token))
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["path"] == "state"
    wait_for("the core", lambda: found(api)["core"]["state"] == "ok")


def test_a_user_that_was_changed_has_no_access(stack: Stack) -> None:
    api, _ = stack
    token = api.new_token("operator")
    assert api.send("POST", "/auth/logout-everywhere", token=token).status_code == 200
    api.forget_tokens()
    assert api.send("GET", DETAIL, token=token).status_code == 401


def test_a_hub_that_hangs_is_reported_within_a_second(stack: Stack) -> None:
    api, process = stack
    # Its threads are those of the arbiter. The workers go on.
    with hanging(master_of(process)):
        health = within_a_second(api, lambda: found(api))
        assert (health["whole"], health["hub"]["state"]) == ("failed", "failed")
        assert health["core"]["state"] == "ok"
        assert gauges(api)["hub"] == 3
    wait_for("the hub", lambda: found(api)["hub"]["state"] == "ok")


def test_a_core_and_a_hub_that_hang_are_reported_within_a_second(stack: Stack) -> None:
    api, process = stack
    with hanging(core_of(process)), hanging(master_of(process)):
        health = within_a_second(api, lambda: found(api))
        assert [health[name]["state"] for name in ("core", "hub")] == ["failed", "failed"]
    wait_for("both", lambda: {found(api)[name]["state"] for name in ("core", "hub")} == {"ok"})


@pytest.fixture(scope="module")
def lone(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Path]]:
    """An API without a core, and the socket at which it looks for one."""
    api, _ = stack
    folder = tmp_path_factory.mktemp("lone")
    state = Path(api.environment["GATEWAY_CA"]).parent
    with running_api(folder / "core.sock", state, GATEWAY_API_RUNTIME=str(folder)) as url:
        yield Api({**api.environment, "GATEWAY_URL": url}), folder / "core.sock"


@contextmanager
def faulty_core(socket: Path, mode: str, *arguments: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.faulty_peer", str(socket), "--mode", mode, *arguments]
    )
    try:
        wait_for("the faulty peer", socket.exists)
        yield
    finally:
        process.kill()
        process.wait()
        socket.unlink()


@pytest.mark.parametrize("fault", ["hang", "half", "trickle", "garbage", "endless", "hangup", "full"])
@pytest.mark.parametrize("decides_access", [True, False])
def test_a_faulty_core_is_reported_within_a_second(
    stack: Stack, lone: tuple[Api, Path], fault: str, decides_access: bool
) -> None:
    (api, _), (alone, socket) = stack, lone
    access = ("--access", api.environment["CORE_SOCKET"]) if decides_access else ()
    with faulty_core(socket, fault, *access):
        token = api.token("operator")
        health = within_a_second(alone, lambda: found(alone, token=token))
        assert health["core"]["state"] == "failed"
        assert list(health) == ["whole", "core", *OWN]


def test_without_a_core_the_detail_says_so(stack: Stack, lone: tuple[Api, Path]) -> None:
    health = found(lone[0], token=stack[0].token("operator"))
    assert "No core daemon is running" in health["core"]["message"]


def test_a_certificate_that_ends_soon_is_reported(stack: Stack, tmp_path: Path) -> None:
    api, _ = stack
    state = Path(api.environment["GATEWAY_CA"]).parent
    for name in ("key.pem", "secret"):
        shutil.copy(state / name, tmp_path)
    certificate = tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-new", "-key", state / "key.pem", "-subj", "/CN=localhost"]
    valid = ["-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    subprocess.run([*command, *valid, "-out", certificate], check=True, capture_output=True)
    with running_api(state / "core.sock", tmp_path) as url:
        there = Api({**api.environment, "GATEWAY_URL": url, "GATEWAY_CA": str(certificate)})
        health, left = found(there)["certificate"], samples(there)["gateway_certificate_remaining_seconds"]
    assert (health["state"], health["message"]) == ("degraded", "Days until the TLS certificate ends: 1.")
    assert 1.9 < left / 86400 <= 2
