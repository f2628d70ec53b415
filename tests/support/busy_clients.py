"""Clients that send requests without a pause, in a process of their own.

`python -m tests.support.busy_clients KIND URL CERTIFICATE CLIENTS` prints a line when each client has a
response, goes on until its standard input ends, and prints the number of responses by status, as JSON.
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter


class _From(HTTPAdapter):
    """Connects from an address of this machine's loopback network."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *arguments: object, **more: object) -> None:
        more["source_address"] = (self._address, 0)
        super().init_poolmanager(*arguments, **more)  # type: ignore[arg-type]


def session_from(address: str) -> requests.Session:
    """A client at this address."""
    session = requests.Session()
    session.trust_env = False
    session.mount("https://", _From(address))
    return session


@contextmanager
def busy_clients(kind: str, url: str, certificate: str, clients: int) -> Iterator[dict[int, int]]:
    """Runs the clients until the end of the block. Then the result has the number of responses by status."""
    statuses: dict[int, int] = {}
    command = [sys.executable, "-m", "tests.support.busy_clients", kind, url, certificate, str(clients)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        yield statuses
        counted, _ = process.communicate(timeout=60)
        statuses |= {int(status): number for status, number in json.loads(counted).items()}
    finally:
        process.kill()
        process.wait()


def _get(url: str, certificate: str, number: int) -> Iterator[int]:
    """The statuses of one request again and again, over one connection."""
    with session_from("127.0.0.1") as session:
        while True:
            yield session.get(url, verify=certificate, timeout=60).status_code


def _guess(url: str, certificate: str, number: int) -> Iterator[int]:
    """The statuses of logins with wrong passwords. Each client has an address and users of its own: a single
    address would soon get 429."""
    with session_from(f"127.0.9.{number + 1}") as session:
        for tries in count():
            body = {"username": f"user{number}-{tries}", "password": "guess"}
            yield session.post(
                f"{url}/api/v1/auth/login", json=body, verify=certificate, timeout=60
            ).status_code


KINDS: dict[str, Callable[[str, str, int], Iterator[int]]] = {"get": _get, "guess": _guess}


def main() -> None:
    kind, url, certificate, clients = sys.argv[1:]
    statuses: Counter[int] = Counter()
    over = threading.Event()
    begun = threading.Semaphore(0)

    def send(number: int) -> None:
        for sent, status in enumerate(KINDS[kind](url, certificate, number)):
            statuses[status] += 1
            if sent == 0:
                begun.release()
            if over.is_set():
                return

    threads = [threading.Thread(target=send, args=(number,)) for number in range(int(clients))]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps(statuses) + "\n")


if __name__ == "__main__":
    main()
