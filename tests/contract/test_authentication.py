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

from gateway_contract.passwords import hash_password
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


def statuses(stack: Api, token: str) -> set[int]:
    """Of enough requests on connections of their own that each of two workers gets some."""
    headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
    url = f"{stack.url}/api/v1/qos"
    return {stack.session.get(url, headers=headers, timeout=10).status_code for _ in range(12)}


def test_the_answer_to_a_login_has_no_envelope_and_a_token_that_says_for_whom_and_how_long(
    stack: Api, reconfigure: Reconfigure
) -> None:
    for lifetime in (3600, 60):
        reconfigure(lambda api, seconds=lifetime: api.update(token_lifetime=seconds))
        answer = stack.log_in("operator", stack.environment["OPERATOR_PASSWORD"]).json()
        assert set(answer) == {"access_token", "token_type", "expires_in"}
        assert (answer["token_type"], answer["expires_in"]) == ("bearer", lifetime)
        claims = jwt.decode(answer["access_token"], options={"verify_signature": False})
        assert set(claims) == {"iss", "sub", "role", "gen", "ledger", "iat", "exp", "jti"}
        assert (claims["sub"], claims["role"]) == ("operator", "operator")
        assert claims["exp"] - claims["iat"] == lifetime


@pytest.mark.parametrize(
    ("username", "password"),
    [
        ("admin", "wrong"),
        ("nobody", "wrong"),
        ("", ""),
        ("admin", "x" * 73),
        ("a\nb", "a\0b"),
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


def test_a_logged_out_token_is_worthless_in_every_worker_and_learns_nothing(stack: Api) -> None:
    token, other = stack.new_token("operator"), stack.new_token("operator")
    assert statuses(stack, token) == {200}
    assert stack.send("POST", "/auth/logout", token=token).status_code == 200
    assert (statuses(stack, token), statuses(stack, other)) == ({401}, {200})
    for path in ("/1", "/999999", "?limit=wrong", "?limit=2", ""):
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


@pytest.mark.parametrize("changed", ["password", "role", "removed"])
def test_a_changed_or_removed_user_ends_its_tokens_for_good(
    stack: Api, reconfigure: Reconfigure, changed: str
) -> None:
    def change(api: dict[str, Any]) -> None:
        if changed == "password":
            api["users"][1]["password_hash"] = hash_password("another")
        elif changed == "role":
            api["users"][1]["role"] = "admin"
        else:
            del api["users"][1]

    token, admins = stack.new_token("operator"), stack.new_token("admin")
    reconfigure(change)
    assert (statuses(stack, token), statuses(stack, admins)) == ({401}, {200})
    refused = stack.log_in("operator", stack.environment["OPERATOR_PASSWORD"]).status_code == 401
    assert refused is (changed != "role")
    reconfigure(lambda api: None)
    assert (statuses(stack, token), statuses(stack, stack.new_token("operator"))) == ({401}, {200})


@pytest.mark.parametrize("by", ["operator", "admin"])
@pytest.mark.parametrize("body", [None, {}, {"username": "operator"}])
def test_a_user_ends_all_tokens_of_its_own_and_an_admin_those_of_anybody(
    stack: Api, by: str, body: dict[str, str] | None
) -> None:
    ended = body.get("username", by) if body else by
    tokens = {role: stack.new_token(role) for role in ("operator", "admin")}
    own = stack.new_token(by)
    answer = stack.send("POST", "/auth/logout-everywhere", token=own, json=body)
    assert (answer.status_code, answer.json()["data"]) == (200, {"message": f"Ended all tokens of {ended}"})
    assert {role for role, token in tokens.items() if statuses(stack, token) == {401}} == {ended}
    assert statuses(stack, stack.new_token(ended)) == {200}


def test_an_operator_ends_nobody_else_s_tokens_and_an_unknown_user_is_not_found(stack: Api) -> None:
    admins, operators = stack.new_token("admin"), stack.new_token("operator")
    for username in ("admin", "nobody"):
        answer = stack.send("POST", "/auth/logout-everywhere", token=operators, json={"username": username})
        assert (answer.status_code, answer.json()) == (403, {"detail": "Admin role required"})
    answer = stack.send("POST", "/auth/logout-everywhere", token=admins, json={"username": "nobody"})
    assert (answer.status_code, answer.json()) == (404, {"status": "error", "message": "No such user"})


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
