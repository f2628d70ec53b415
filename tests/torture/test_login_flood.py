"""Ten clients who guess passwords without a pause, and what everybody else notices of it."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway_api.auth.passwords import COST
from tests.support.measuring import alone
from tests.support.stack import Api, running_stack
from tests.torture.guessers import CLIENTS, session_from

pytestmark = [pytest.mark.slow, pytest.mark.last]

SAMPLES = 500
LOGINS = 5


@dataclass
class Flood:
    """Seconds that a login took before, at the least; that health and right logins from another address took
    meanwhile; and what the guessers were answered, how often."""

    before: float
    health: list[float]
    logins: list[float]
    answers: dict[str, int]


def login(api: Api, address: str) -> float:
    """Seconds that a right login takes from this address, until it succeeds."""
    environment = api.environment
    body = {"username": environment["ADMIN_USER"], "password": environment["ADMIN_PASSWORD"]}
    began = time.monotonic()
    with session_from(address) as session:
        answered = session.post(
            f"{api.url}/api/v1/auth/login", json=body, verify=environment["GATEWAY_CA"], timeout=60
        )
        assert answered.status_code == 200, answered.text
    return time.monotonic() - began


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> Flood:
    state = tmp_path_factory.mktemp("flood")
    with running_stack(state, sessions=100, cost=COST) as (api, _), alone():
        before = min(login(api, f"127.0.11.{number + 1}") for number in range(LOGINS))
        guessers = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.guessers", api.url, api.environment["GATEWAY_CA"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        try:
            assert guessers.stdout is not None
            assert guessers.stdout.readline() == b"guessing\n"
            health = []
            with session_from("127.0.0.1") as session:
                for _ in range(SAMPLES):
                    began = time.monotonic()
                    answered = session.get(
                        f"{api.url}/api/v1/health", verify=api.environment["GATEWAY_CA"], timeout=60
                    )
                    assert answered.status_code == 200
                    health.append(time.monotonic() - began)
            logins = [login(api, f"127.0.10.{number + 1}") for number in range(LOGINS)]
            answers, _ = guessers.communicate(timeout=60)
        finally:
            guessers.kill()
            guessers.wait()
    return Flood(before, health, logins, json.loads(answers))


def test_health_waits_for_no_password_hash(flood: Flood) -> None:
    # A login is little else than one hash, and ten are always wanted.
    assert sorted(flood.health)[int(SAMPLES * 0.99)] < flood.before / 2


def test_a_right_login_from_elsewhere_waits_for_few_of_the_guessers(flood: Flood) -> None:
    # Ten of them, and four times as many of their hashes, would be before it.
    assert sorted(flood.logins)[LOGINS // 2] < 6 * flood.before


def test_the_guessers_are_refused_and_told_to_wait(flood: Flood) -> None:
    assert set(flood.answers) <= {"401", "429"}
    assert sum(flood.answers.values()) > CLIENTS
