"""What a client of the API gets while the core is stopped, hangs, is faulty or comes back."""

import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from gateway_contract.base.errors import CoreAbsent
from tests.support.stack import issued, running_api, running_core, wait_for

UNREACHABLE = {"status": "error", "message": "Core daemon unreachable"}

#: Far more than the deadline of a call, and far less than any wait without one, in seconds.
LATEST = 15

FAULTS = ["hang", "garbage", "wrongshape", "invalid", "full"]
#: Lies that begin before a call is read, or that are right of another call, are of the access check alone.
AFTER_THE_ACCESS_CHECK = ["hangup", "twice", "trickle"]


@dataclass
class Lone:
    """An API without a core: `socket` is where it looks for one, `factory` is for a core."""

    url: str
    certificate: Path
    socket: Path
    factory: Path
    token: str

    def ask(self, method: str = "GET", path: str = "/subscribers", **more: Any) -> requests.Response:
        """On a connection of its own, as an operator with curl would."""
        headers = {"Authorization": f"Bearer {self.token}", "Connection": "close", **more.pop("headers", {})}
        session = requests.Session()
        session.trust_env = False
        with session:
            url = f"{self.url}/api/v1{path}"
            return session.request(method, url, headers=headers, verify=self.certificate, timeout=60, **more)


@pytest.fixture(scope="module")
def lone(api: Any, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lone]:
    folder = tmp_path_factory.mktemp("lone")
    # With the users' generations: one token is for this core and for the one of the shared stack.
    shutil.copytree(state / "configuration", folder / "configuration")
    stored = folder / "configuration" / "state.json"
    stored.write_text(json.dumps({**json.loads(stored.read_bytes()), "candidate": None, "deadline": None}))
    token = issued(state, "admin", 3600)
    with running_api(folder / "core.sock", state) as url:
        yield Lone(url, state / "certificate.pem", folder / "core.sock", state / "factory.json", token)


@contextmanager
def faulty_core(lone: Lone, mode: str, *arguments: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.faulty_peer", str(lone.socket), "--mode", mode, *arguments]
    )
    try:
        wait_for("the faulty peer", lone.socket.exists)
        yield
    finally:
        process.kill()
        process.wait()
        lone.socket.unlink()


@contextmanager
def real_core(lone: Lone) -> Iterator["subprocess.Popen[bytes]"]:
    with running_core(lone.socket, lone.factory, "--sessions", "50") as process:
        yield process


def assert_unreachable(answer: requests.Response) -> None:
    assert (answer.status_code, answer.json()) == (500, UNREACHABLE)


def assert_unreachable_in_time(lone: Lone, *asked: str, **more: Any) -> None:
    began = time.monotonic()
    assert_unreachable(lone.ask(*asked, **more))
    assert time.monotonic() - began < LATEST


def assert_good(lone: Lone) -> None:
    """What has been wrong is over: the answers of both workers are right."""
    for _ in range(6):
        answer = lone.ask()
        assert (answer.status_code, answer.json()["data"]["count"]) == (200, 50)


def test_without_a_core_it_is_500_and_what_needs_none_still_answers(lone: Lone, state: Path) -> None:
    for path in ("/subscribers", "/health", "/system/config"):
        answer = lone.ask(path=path, headers={"X-Request-ID": "find-me-in-the-log"})
        assert (answer.status_code, answer.json()) == (500, {**UNREACHABLE, "hint": CoreAbsent.HINT})
    lines = [line for line in (state / "api.log").read_text().splitlines() if "find-me-in-the-log" in line]
    assert any("cannot call org.gatewayapi.core" in line for line in lines)
    assert lone.ask(path="/system/version").status_code == 200
    assert lone.ask(headers={"Authorization": "Bearer x"}).status_code == 401
    assert lone.ask(path="/nope").status_code == 404
    answer = requests.get(f"{lone.url}/metrics", verify=lone.certificate, timeout=60)
    assert answer.status_code == 200
    assert "gateway_api_core_up 0.0\n" in answer.text
    assert "svc_" not in answer.text


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_core_is_500_in_time_and_forgotten_when_a_real_one_comes(lone: Lone, fault: str) -> None:
    with faulty_core(lone, fault):
        assert_unreachable_in_time(lone)
    with real_core(lone):
        assert_good(lone)


@pytest.mark.parametrize("fault", AFTER_THE_ACCESS_CHECK)
def test_a_faulty_core_after_the_access_check_is_500_in_time(lone: Lone, fault: str, api: Any) -> None:
    with faulty_core(lone, fault, "--access", api.environment["CORE_SOCKET"]):
        for method, path, body in (
            ("GET", "/subscribers", None),
            ("DELETE", "/subscribers/1", None),
            ("PUT", "/subscribers/1/rate", {"rate_down": "1m", "rate_up": "1m"}),
        ):
            if fault == "trickle" and method != "GET":
                continue  # A change has an empty reply: little to be slow.
            assert_unreachable_in_time(lone, method, path, json=body)


def test_a_client_that_has_the_list_of_now_makes_no_core_list_anything(lone: Lone, api: Any) -> None:
    tag = api.send("GET", "/subscribers").headers["ETag"]
    with faulty_core(lone, "hangup", "--access", api.environment["CORE_SOCKET"]):
        answer = lone.ask(headers={"If-None-Match": tag})
        assert (answer.status_code, answer.content) == (304, b"")
        assert lone.ask().status_code == 500


def test_a_change_is_sent_once_even_when_its_answer_never_comes(lone: Lone, api: Any, tmp_path: Path) -> None:
    count = tmp_path / "count"
    access = ("--access", api.environment["CORE_SOCKET"], "--count", str(count))
    with faulty_core(lone, "hangup", *access):
        assert_unreachable(lone.ask("DELETE", "/subscribers/1"))
    assert count.read_bytes().count(b"DisconnectSession") == 1


def test_a_core_that_hangs_is_500_for_many_at_once_and_fine_when_it_goes_on(lone: Lone) -> None:
    with real_core(lone) as core:
        assert_good(lone)
        core.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        with ThreadPoolExecutor(40) as pool:
            paths = ("/system/version", "/subscribers") * 20
            statuses = list(pool.map(lambda path: lone.ask(path=path).status_code, paths))
        assert (set(statuses[::2]), set(statuses[1::2])) == ({200}, {500})
        # One after the other, they would wait for twenty deadlines.
        assert time.monotonic() - began < 60
        core.send_signal(signal.SIGCONT)
        assert_good(lone)


def test_a_commit_that_the_disk_refuses_says_which_step_failed_and_works_later(
    lone: Lone, state: Path
) -> None:
    with real_core(lone) as core:
        wait_for("the core", lambda: lone.ask().ok)
        lone.ask("POST", "/system/config/set", json={"path": "radius.secret", "value": "a-new-one"})
        before = lone.ask(path="/system/config").content
        limits = resource.prlimit(core.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(core.pid, resource.RLIMIT_FSIZE, (10, limits[1]))
        answer = lone.ask("POST", "/system/config/commit", headers={"X-Request-ID": "disk-full"})
        message = "Cannot write the revision: File too large. Nothing was changed"
        assert (answer.status_code, answer.json()) == (500, {"status": "error", "message": message})
        assert f'request_id=disk-full message="POST /api/v1/system/config/commit failed: {message}"' in (
            (state / "api.log").read_text()
        )
        assert lone.ask(path="/system/config").content == before
        resource.prlimit(core.pid, resource.RLIMIT_FSIZE, limits)
        assert lone.ask("POST", "/system/config/commit").json()["data"]["changes"] == 1
