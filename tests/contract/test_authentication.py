"""Who is let in, for how long, and what ends it: against a stack of its own, whose users change."""

import copy
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests

from gateway_api.auth.passwords import hash_password
from tests.support.stack import Api, call_core, running_stack

WRONG = {"detail": "Incorrect username or password"}
NOBODY = {"detail": "Could not validate credentials"}


Running = tuple[Api, "subprocess.Popen[bytes]"]
Reconfigure = Callable[[Callable[[dict[str, Any]], None]], None]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_stack(tmp_path_factory.mktemp("auth"), sessions=5) as running:
        yield running


@pytest.fixture
def stack(running: Running) -> Api:
    return running[0]


@pytest.fixture
def reconfigure(running: Running) -> Iterator[Reconfigure]:
    """Commits a change of the configuration's API section, and at the test's end the one before: at the
    core's own socket, because the API may be the thing that was turned off."""
    socket = Path(running[0].environment["CORE_SOCKET"])

    def commit(api: Any) -> None:
        edit = {"action": "set", "path": "api", "value_json": json.dumps(api)}
        call_core(socket, "EditCandidate", edits=[edit])
        call_core(socket, "CommitCandidate", author="test")

    before = json.loads((socket.parent / "factory.json").read_text())["api"]

    def change(edit: Callable[[dict[str, Any]], None]) -> None:
        api = copy.deepcopy(before)
        edit(api)
        commit(api)

    yield change
    commit(before)


def both_workers(ask: Callable[[], requests.Response]) -> list[requests.Response]:
    """Enough answers on connections of their own that each of two workers gave some."""
    return [ask() for _ in range(12)]


def fresh(stack: Api, path: str, token: str) -> requests.Response:
    """A GET on a connection of its own."""
    headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
    return stack.session.get(f"{stack.url}/api/v1{path}", headers=headers, timeout=10)


def test_the_answer_to_a_login_has_no_envelope_and_a_token_that_says_for_whom_and_how_long(
    stack: Api,
) -> None:
    answer = stack.log_in("operator", stack.environment["OPERATOR_PASSWORD"]).json()
    assert set(answer) == {"access_token", "token_type", "expires_in"}
    assert (answer["token_type"], answer["expires_in"]) == ("bearer", 3600)
    claims = jwt.decode(answer["access_token"], options={"verify_signature": False})
    assert set(claims) == {"iss", "sub", "role", "gen", "ledger", "iat", "exp", "jti"}
    assert (claims["sub"], claims["role"]) == ("operator", "operator")
    assert claims["exp"] - claims["iat"] == 3600


def test_every_worker_takes_a_token_of_any(stack: Api) -> None:
    token = stack.new_token("operator")
    answers = both_workers(lambda: fresh(stack, "/subscribers/summary", token))
    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.parametrize(
    ("username", "password"),
    [
        ("admin", "wrong"),
        ("nobody", "wrong"),
        ("", ""),
        ("admin", "x" * 73),
        ("admin", "a\0b"),
        ("é" * 500, "é" * 36),
        ("a\nb", "\x1b[31m"),
    ],
)
def test_a_wrong_login_is_401_whatever_is_wrong(stack: Api, username: str, password: str) -> None:
    answer = stack.log_in(username, password)
    assert (answer.status_code, answer.json()) == (401, WRONG)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_guessing_is_slowed_down_until_a_right_login_after_the_pause(stack: Api) -> None:
    # A busy machine may let the first pauses pass, of which each is longer than the one before.
    guesses = (stack.log_in("operator", "guess") for _ in range(20))
    answer = next(each for each in guesses if each.status_code == 429)
    assert answer.json()["status"] == "error"
    wait = int(answer.headers["Retry-After"])
    assert wait >= 1
    time.sleep(wait)
    assert stack.log_in("operator", stack.environment["OPERATOR_PASSWORD"]).status_code == 200
    assert stack.log_in("operator", "guess").status_code == 401


def test_a_logged_out_token_is_worthless_in_every_worker(stack: Api) -> None:
    token, other = stack.new_token("operator"), stack.new_token("operator")
    assert stack.send("POST", "/auth/logout", token=token).status_code == 200
    answers = both_workers(lambda: fresh(stack, "/qos", token))
    assert {answer.status_code for answer in answers} == {401}
    assert fresh(stack, "/qos", other).status_code == 200


def test_a_logged_out_token_learns_nothing_of_what_it_asks_for(stack: Api) -> None:
    token = stack.new_token("operator")
    assert stack.send("POST", "/auth/logout", token=token).ok
    for path in ("/1", "/999999", "/none", "?limit=wrong", "/1?other=1", "?limit=2", ""):
        answer = stack.send("GET", f"/subscribers{path}", token=token)
        assert (answer.status_code, answer.json()) == (401, NOBODY)


def test_a_demoted_admin_loses_the_right_at_once(stack: Api, reconfigure: Reconfigure) -> None:
    def demote(api: dict[str, Any]) -> None:
        api["users"][0]["role"] = "operator"
        api["users"].append({"username": "other", "password_hash": hash_password("x"), "role": "admin"})

    token = stack.new_token("admin")
    reconfigure(demote)
    answer = stack.send("DELETE", "/subscribers/1", token=token)
    assert (answer.status_code, answer.json()) == (401, NOBODY)
    answer = stack.send("DELETE", "/subscribers/1", token=stack.new_token("admin"))
    assert answer.status_code == 403


def new_password(api: dict[str, Any]) -> None:
    api["users"][1]["password_hash"] = hash_password("another")


def no_operator(api: dict[str, Any]) -> None:
    del api["users"][1]


def other_role(api: dict[str, Any]) -> None:
    api["users"][1]["role"] = "admin"


@pytest.mark.parametrize("change", [new_password, no_operator, other_role])
def test_a_changed_or_removed_user_ends_its_tokens_for_good(
    stack: Api, reconfigure: Reconfigure, change: Callable[[dict[str, Any]], None]
) -> None:
    token = stack.new_token("operator")
    reconfigure(change)
    answers = both_workers(lambda: fresh(stack, "/qos", token))
    assert {answer.status_code for answer in answers} == {401}
    removed = stack.log_in("operator", stack.environment["OPERATOR_PASSWORD"]).status_code == 401
    assert removed is (change is not other_role)
    reconfigure(lambda api: None)
    answers = both_workers(lambda: fresh(stack, "/qos", token))
    assert {answer.status_code for answer in answers} == {401}
    assert fresh(stack, "/qos", stack.new_token("operator")).status_code == 200


def test_a_change_of_one_user_leaves_the_tokens_of_the_others(stack: Api, reconfigure: Reconfigure) -> None:
    token = stack.new_token("admin")
    reconfigure(new_password)
    assert fresh(stack, "/qos", token).status_code == 200


@pytest.mark.parametrize("body", [None, {}, {"username": "operator"}])
def test_a_user_ends_all_tokens_of_its_own(stack: Api, body: dict[str, str] | None) -> None:
    token, other, admins = stack.new_token("operator"), stack.new_token("operator"), stack.new_token("admin")
    answer = stack.send("POST", "/auth/logout-everywhere", token=token, json=body)
    assert (answer.status_code, answer.json()["data"]) == (200, {"message": "Ended all tokens of operator"})
    for ended in (token, other):
        assert {a.status_code for a in both_workers(lambda t=ended: fresh(stack, "/qos", t))} == {401}
    assert fresh(stack, "/qos", admins).status_code == 200
    assert fresh(stack, "/qos", stack.new_token("operator")).status_code == 200


def test_an_admin_ends_the_tokens_of_anybody(stack: Api) -> None:
    admins, operators = stack.new_token("admin"), stack.new_token("operator")
    body = {"username": "operator"}
    assert stack.send("POST", "/auth/logout-everywhere", token=admins, json=body).status_code == 200
    assert fresh(stack, "/qos", operators).status_code == 401
    assert fresh(stack, "/qos", admins).status_code == 200


@pytest.mark.parametrize("username", ["admin", "nobody"])
def test_an_operator_ends_nobody_else_s_tokens(stack: Api, username: str) -> None:
    admins, operators = stack.new_token("admin"), stack.new_token("operator")
    answer = stack.send("POST", "/auth/logout-everywhere", token=operators, json={"username": username})
    assert (answer.status_code, answer.json()) == (403, {"detail": "Admin role required"})
    assert fresh(stack, "/qos", admins).status_code == 200


def test_the_tokens_of_a_user_who_does_not_exist_are_not_found(stack: Api) -> None:
    body = {"username": "nobody"}
    answer = stack.send("POST", "/auth/logout-everywhere", token=stack.new_token("admin"), json=body)
    assert (answer.status_code, answer.json()) == (404, {"status": "error", "message": "No such user"})


def test_the_token_lifetime_is_the_configured_one(stack: Api, reconfigure: Reconfigure) -> None:
    reconfigure(lambda api: api.update(token_lifetime=60))
    answer = stack.log_in("operator", stack.environment["OPERATOR_PASSWORD"]).json()
    claims = jwt.decode(answer["access_token"], options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == answer["expires_in"] == 60


def test_a_disabled_api_answers_503_but_for_health_version_and_metrics(
    stack: Api, reconfigure: Reconfigure
) -> None:
    token = stack.new_token("admin")
    reconfigure(lambda api: api.update(enabled=False))
    asked = ("GET", "/subscribers"), ("GET", "/subscribers/99"), ("POST", "/auth/login"), ("GET", "/nope")
    for method, path in asked:
        answer = stack.send(method, path, token=token)
        assert (answer.status_code, answer.json()["status"]) == (503, "error")
    for path in ("/health", "/system/health", "/system/version", "/metrics"):
        assert stack.send("GET", path, None).status_code == 200


def test_a_token_survives_a_restart_of_the_api(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=1, WORKERS=1) as (first, _):
        token, revoked = first.new_token("operator"), first.new_token("operator")
        ended = first.new_token("admin")
        assert first.send("POST", "/auth/logout", token=revoked).ok
        assert first.send("POST", "/auth/logout-everywhere", token=ended).ok
    with running_stack(tmp_path, sessions=1, WORKERS=1) as (second, _):
        assert second.send("GET", "/qos", token=token).status_code == 200
        assert second.send("GET", "/qos", token=revoked).status_code == 401
        assert second.send("GET", "/qos", token=ended).status_code == 401
