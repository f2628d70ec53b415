"""Many clients that request one path without a pause, in their own process.

`python -m tests.contract.askers URL CERTIFICATE CLIENTS` prints a line when each has an answer, goes on until
its standard input ends, and prints how many answers of each status there were, as JSON.
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests


@contextmanager
def asking(url: str, certificate: str, clients: int) -> Iterator[dict[int, int]]:
    """Runs the clients until the end of the block. Then the result has the number of responses by status."""
    answers: dict[int, int] = {}
    command = [sys.executable, "-m", "tests.contract.askers", url, certificate, str(clients)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"asking\n"
        yield answers
        counted, _ = process.communicate(timeout=60)
        answers |= {int(status): number for status, number in json.loads(counted).items()}
    finally:
        process.kill()
        process.wait()


def main() -> None:
    url, certificate, clients = sys.argv[1:]
    answers: Counter[int] = Counter()
    over = threading.Event()
    begun = threading.Semaphore(0)

    def ask() -> None:
        with requests.Session() as session:
            session.trust_env = False
            answered = session.get(url, verify=certificate, timeout=60)
            begun.release()
            while not over.is_set():
                answers[answered.status_code] += 1
                answered = session.get(url, verify=certificate, timeout=60)

    threads = [threading.Thread(target=ask) for _ in range(int(clients))]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    sys.stdout.write("asking\n")
    sys.stdout.flush()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
