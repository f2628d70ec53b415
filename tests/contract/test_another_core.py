"""The API in front of a core that has what a core must have, and nothing else; and `gateway-core check`."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.core.interface import CORE
from tests.support.prometheus import samples
from tests.support.receivers import Receiver
from tests.support.routes import ALWAYS, OPEN, ROUTES, Route
from tests.support.shell import Shell
from tests.support.stack import Api, running_api, running_core, wait_for

GUIDE = (Path(__file__).parents[2] / "docs/how-to/another-core.md").read_text()
LACKS = "The core daemon lacks the method "
PROGRAM = "tests.contract.small_core"
OPTIONAL = frozenset(method.__name__ for method in CORE.optional)


@contextmanager
def small_gateway(api: Api, state: Path, folder: Path) -> Iterator[Api]:
    """A gateway of 100 sessions with a core that has only the required methods. The users are those of the
    stack `api`, whose folder is `state`; what is logged is in `state`, too."""
    socket = folder / "core.sock"
    with ExitStack() as stack:
        stack.enter_context(running_core(socket, state / "factory.json", "--sessions", "100", module=PROGRAM))
        # Beside the stack's history, it would wait until the stack's workers record no more.
        url = stack.enter_context(running_api(socket, state, GATEWAY_API_STATE=str(folder)))
        yield Api({**api.environment, "GATEWAY_URL": url})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("small")


@pytest.fixture(scope="module")
def small(api: Api, state: Path, folder: Path) -> Iterator[Api]:
    with small_gateway(api, state, folder) as made:
        yield made


@pytest.fixture(scope="module")
def documented(small: Api) -> set[str]:
    """The routes that may respond 501, as the OpenAPI document says."""
    paths = small.send("GET", "/openapi.json").json()["paths"]
    return {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, operations in paths.items()
        for method, operation in operations.items()
        if "501" in operation["responses"]
    }


@pytest.fixture(scope="module")
def answers(small: Api) -> dict[str, Any]:
    """What each route responded to a request that works with a whole core: the status, and the body."""
    found = {}
    ids = iter(range(1, 100))
    registered = small.send(
        "POST", "/webhooks", json={"url": "http://127.0.0.1:9/", "events": ["session.down"]}
    ).json()["data"]["id"]
    for route in ROUTES:
        response = small.send(route.method, _path(route, str(next(ids)), registered), **_body(route))
        found[str(route)] = response.status_code, response.content if response.status_code == 501 else b""
        response.close()
        if route.path == "/auth/logout":
            small.forget_tokens()
    return found


def _path(route: Route, session: str, webhook: str) -> str:
    path = route.path.replace("{id}", session).replace("{webhook}", webhook)
    return path.replace("{revision}", "1").replace("{job}", "1")


def _body(route: Route) -> dict[str, Any]:
    body = route.body or route.may_have
    role = {} if route.access not in (ALWAYS, OPEN) else {"role": None}
    return {"stream": route.streams, **role, **({} if body is None else {"json": body})}


def test_a_route_responds_501_if_the_document_says_so_and_the_core_lacks_its_method(
    answers: dict[str, Any], documented: set[str]
) -> None:
    assert documented
    assert {route for route, (status, _) in answers.items() if status == 501} == documented
    documents = [msgspec.json.decode(body) for status, body in answers.values() if status == 501]
    assert all(list(document) == ["status", "message"] for document in documents)
    assert {document["status"] for document in documents} == {"error"}
    assert {document["message"].removeprefix(LACKS) for document in documents} == {
        *("EndTokens", "StartRateJob", "StartDisconnectJob", "ListJobs", "GetJob", "CancelJob"),
        *("ListTalkers", "WatchTraffic", "ListFaults", "GetCandidate", "ConfirmCommit"),
        *("ReplaceCandidate", "ListArchive", "GetArchivedRevision"),
    }


def test_every_other_route_responds_as_with_a_whole_core(
    answers: dict[str, Any], documented: set[str]
) -> None:
    # These need a name and a password of a user, or a file of a page.
    others = {"POST /auth/login": 401, "GET /docs/{digest}/{name}": 404}
    for route in ROUTES:
        if str(route) not in documented:
            expected = others.get(str(route), route.status)
            assert answers[str(route)][0] == expected, route


def test_health_metrics_and_lists_do_without_what_the_core_lacks(small: Api) -> None:
    assert small.get("/health", None)["active_sessions"] > 0
    detail = small.get("/system/health/detail")
    assert {one["name"]: one["state"] for one in detail["dependencies"]}["core"] == "ok"
    found = samples(small)
    assert found["gateway_api_core_up"] == 1
    assert found["svc_active_sessions_total"] > 0
    # A list without a version has no entity tag, and all its records.
    response = small.send("GET", "/subscribers")
    assert "ETag" not in response.headers
    assert response.json()["data"]["count"] == len(response.json()["data"]["sessions"]) > 0


def test_events_reach_a_stream_and_a_webhook(small: Api) -> None:
    with Receiver() as receiver:
        small.send("POST", "/webhooks", json={"url": receiver.url, "events": ["session.down"]})
        with small.send("GET", "/events/subscribers", stream=True) as stream:
            id = small.get("/subscribers", params={"limit": 1})["sessions"][0]["id"]
            assert small.send("DELETE", f"/subscribers/{id}").status_code == 200
            lines = stream.iter_lines()
            assert next(line for line in lines if line.startswith(b"event:")) == b"event: session_down"
        wait_for("the delivery", lambda: receiver.received)


def test_what_the_core_lacks_is_logged_once_for_each_worker(small: Api, state: Path) -> None:
    def lines() -> list[str]:
        return [line for line in (state / "api.log").read_text().splitlines() if LACKS in line]

    wait_for("the worker that records failed sign-ons", lambda: any("SignOns" in line for line in lines()))
    counts = Counter(line.partition(LACKS)[2].strip('" ') for line in lines())
    assert counts.keys() == {"GetApiSettings", "SubscribeFailedSignOns", "ListChanges"}
    assert max(counts.values()) <= 2


def test_gatewayctl_names_the_method_and_does_not_try_again(small: Api, tmp_path: Path) -> None:
    shell = Shell(small, tmp_path)
    shell.has(small.token("operator"), username="operator")
    ended = shell.run("faults")
    assert (ended.status, ended.err) == (1, f"gatewayctl: {LACKS}ListFaults\n")


# gateway-core check


def check(socket: Path) -> "subprocess.CompletedProcess[str]":
    """Runs the command of the guide on another socket."""
    (words,) = re.findall(r"(?m)^    (gateway-core check) /run/gateway-core/core.sock$", GUIDE)
    command = [str(Path(sys.executable).parent / "gateway-core"), *words.split()[1:], str(socket)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_core_with_the_required_methods_passes_and_its_lacks_are_told(small: Api, folder: Path) -> None:
    done = check(folder / "core.sock")
    assert (done.returncode, done.stderr) == (0, "")
    (told,) = (line for line in done.stdout.splitlines() if line.startswith("Missing, and optional: "))
    assert set(told.removesuffix(".").partition(": ")[2].split(", ")) == OPTIONAL
    assert "Missing, and required" not in done.stdout
    assert "Wrong reply" not in done.stdout
    assert done.stdout.endswith("This core can stand behind the API.\n")


def test_a_core_without_a_required_method_fails_with_its_name(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LACKS", "DisconnectSession ListQos")
    socket = tmp_path / "core.sock"
    with running_core(socket, state / "factory.json", module=PROGRAM):
        done = check(socket)
    assert done.returncode == 1
    found = [line for line in done.stdout.splitlines() if line.startswith("Missing, and required")]
    assert found == ["Missing, and required: DisconnectSession", "Missing, and required: ListQos"]
    assert done.stdout.endswith("This core cannot stand behind the API.\n")


def test_the_own_core_lacks_nothing_and_a_check_changes_nothing(api: Api, state: Path) -> None:
    before = api.get("/audit", "admin")["records"], api.get("/subscribers")["sessions"]
    done = check(state / "core.sock")
    assert done.returncode == 0, done.stdout
    assert "Missing" not in done.stdout
    changing = done.stdout.partition("since they change something, or there is no record: ")[2]
    assert {"CommitCandidate", "DisconnectSession", "RestoreRevision"} < set(
        changing.splitlines()[0].removesuffix(".").split(", ")
    )
    records = api.get("/audit", "admin")["records"]
    assert [record for record in records if record["user"] == "root"] == [
        record for record in before[0] if record["user"] == "root"
    ]
    assert api.get("/subscribers")["sessions"] == before[1]


def test_a_socket_without_a_core_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    done = check(tmp_path / "nobody.sock")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gateway-core check: cannot call org.varlink.service.GetInfo at ")
    assert done.stderr.count("\n") == 1
