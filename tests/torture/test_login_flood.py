"""Ten clients that log in with wrong passwords without a pause, and the requests of others meanwhile."""

import json
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter

from gateway_contract.passwords import COST
from tests.support.stack import Api, running_stack

CLIENTS = 10
SAMPLES = 200
LOGINS = 5


def session_from(address: str, certificate: str) -> requests.Session:
    """A client at an address of this machine's loopback network."""
    session = requests.Session()
    session.trust_env, session.verify = False, certificate
    adapter = HTTPAdapter()
    adapter.init_poolmanager(1, 1, source_address=(address, 0))
    session.mount("https://", adapter)
    return session


def seconds(api: Api, address: str, path: str) -> float:
    """How long a right login, or a request for health, takes from this address."""
    environment = api.environment
    body = {"username": environment["ADMIN_USER"], "password": environment["ADMIN_PASSWORD"]}
    with session_from(address, environment["GATEWAY_CA"]) as session:
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
        with subprocess.Popen(
            [sys.executable, "-m", __name__, api.url, api.environment["GATEWAY_CA"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        ) as guessing:
            assert guessing.stdout is not None
            assert guessing.stdout.readline() == b"begun\n"
            health = median(api, "127.0.12", "/health", SAMPLES)
            login = median(api, "127.0.10", "/auth/login", LOGINS)
            statuses = json.loads(guessing.communicate(timeout=60)[0])
    # A login is little else than one hash, and ten are always wanted.
    assert health < before / 2
    # Ten wrong ones, and four times as many of their hashes, would be before it.
    assert login < 12 * before
    assert set(statuses) <= {"401", "429"}
    assert sum(statuses.values()) > CLIENTS


def guess(url: str, certificate: str) -> None:
    """Ten clients, until standard input ends: prints a line when each has a response, and then the number of
    responses by status."""
    statuses: Counter[int] = Counter()
    over, begun = threading.Event(), threading.Semaphore(0)

    def send(number: int) -> None:
        # With an address and users of its own: a single address would soon get 429.
        with session_from(f"127.0.9.{number + 1}", certificate) as session:
            for tries in count():
                body = {"username": f"user{number}-{tries}", "password": "guess"}
                statuses[session.post(f"{url}/api/v1/auth/login", json=body, timeout=60).status_code] += 1
                begun.release()
                if over.is_set():
                    return

    threads = [threading.Thread(target=send, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    print("begun", flush=True)
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    print(json.dumps(statuses))


if __name__ == "__main__":
    guess(*sys.argv[1:])
