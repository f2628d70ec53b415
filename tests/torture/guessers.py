"""Ten clients that log in with wrong passwords without a pause, in their own process.

`python -m tests.torture.guessers URL CERTIFICATE` prints a line when each has had an answer, goes on until
its standard input ends, and prints how many answers of each status there were, as JSON.
"""

import json
import sys
import threading
from collections import Counter

import requests
from requests.adapters import HTTPAdapter

CLIENTS = 10


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


def main() -> None:
    url, certificate = sys.argv[1:]
    answers: Counter[int] = Counter()
    over = threading.Event()
    begun = threading.Semaphore(0)

    def guess(number: int) -> None:
        # Each has an address and a user: one address alone would soon get 429.
        with session_from(f"127.0.9.{number + 1}") as session:
            tries = 0
            while not over.is_set():
                body = {"username": f"user{number}-{tries}", "password": "guess"}
                answered = session.post(f"{url}/api/v1/auth/login", json=body, verify=certificate, timeout=60)
                answers[answered.status_code] += 1
                tries += 1
                if tries == 1:
                    begun.release()

    threads = [threading.Thread(target=guess, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    sys.stdout.write("guessing\n")
    sys.stdout.flush()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
