"""Ten clients that log in with wrong passwords without a pause, and the requests of others meanwhile."""

import time
from dataclasses import dataclass

import pytest

from gateway_api.auth.passwords import COST
from tests.support.busy_clients import busy_clients, session_from
from tests.support.measuring import alone
from tests.support.stack import Api, running_stack

pytestmark = [pytest.mark.slow, pytest.mark.last]

CLIENTS = 10
SAMPLES = 500
LOGINS = 5


@dataclass
class Flood:
    """Seconds that a login took before, at the least; that health and right logins from another address took
    meanwhile; and the responses to wrong logins by status."""

    before: float
    health: list[float]
    logins: list[float]
    statuses: dict[int, int]


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
        with busy_clients("guess", api.url, api.environment["GATEWAY_CA"], CLIENTS) as statuses:
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
    return Flood(before, health, logins, statuses)


def test_health_waits_for_no_password_hash(flood: Flood) -> None:
    # A login is little else than one hash, and ten are always wanted.
    assert sorted(flood.health)[int(SAMPLES * 0.99)] < flood.before / 2


def test_a_right_login_from_another_address_waits_for_few_wrong_ones(flood: Flood) -> None:
    # Ten of them, and four times as many of their hashes, would be before it.
    assert sorted(flood.logins)[LOGINS // 2] < 6 * flood.before


def test_wrong_logins_are_refused_and_told_to_wait(flood: Flood) -> None:
    assert set(flood.statuses) <= {401, 429}
    assert sum(flood.statuses.values()) > CLIENTS
