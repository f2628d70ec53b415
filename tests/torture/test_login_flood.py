"""Ten clients that log in with wrong passwords without a pause, and the requests of others meanwhile."""

import statistics
import time
from pathlib import Path

from gateway_api.auth.passwords import COST
from tests.support.busy_clients import busy_clients, session_from
from tests.support.stack import Api, running_stack

CLIENTS = 10
SAMPLES = 200
LOGINS = 5


def seconds(api: Api, address: str, path: str) -> float:
    """How long a right login, or a request for health, takes from this address."""
    environment = api.environment
    body = {"username": environment["ADMIN_USER"], "password": environment["ADMIN_PASSWORD"]}
    with session_from(address) as session:
        session.verify = environment["GATEWAY_CA"]
        session.get(f"{api.url}/api/v1/system/version", timeout=60)
        began = time.monotonic()
        if path == "/health":
            answered = session.get(f"{api.url}/api/v1{path}", timeout=60)
        else:
            answered = session.post(f"{api.url}/api/v1{path}", json=body, timeout=60)
        took = time.monotonic() - began
    assert answered.status_code == 200, answered.text
    return took


def median(api: Api, network: str, path: str, number: int) -> float:
    return statistics.median(seconds(api, f"{network}.{each % 250 + 1}", path) for each in range(number))


def test_wrong_logins_hold_up_no_other_requests_and_few_right_logins(tmp_path: Path) -> None:
    with running_stack(tmp_path / "state", sessions=100, cost=COST) as (api, _):
        before = median(api, "127.0.11", "/auth/login", LOGINS)
        with busy_clients("guess", api.url, api.environment["GATEWAY_CA"], CLIENTS) as statuses:
            health = median(api, "127.0.12", "/health", SAMPLES)
            login = median(api, "127.0.10", "/auth/login", LOGINS)
    # A login is little else than one hash, and ten are always wanted.
    assert health < before / 2
    # Ten wrong ones, and four times as many of their hashes, would be before it.
    assert login < 12 * before
    assert set(statuses) <= {401, 429}
    assert sum(statuses.values()) > CLIENTS
