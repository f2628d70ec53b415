"""`python -m bench.peers.post_loop URL NUMBER THREADS`: posts bodies like those of webhooks, no more.

Each thread has a `requests.Session` and posts NUMBER times. Prints the posts of a second.
"""

import sys
import threading
import time

import requests

_HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": "Service-Webhook/1.0",
    "webhook-id": "0123456789abcdef-1",
    "webhook-timestamp": "1795360365",
    "webhook-signature": f"v1,{'A' * 43}=",
}
_BODY = b'{"event":"session.up","timestamp":"2026-03-01T12:00:00Z","data":{"id":1,"padding":"%s"}}' % (
    b"x" * 180
)


def main() -> None:
    url, number, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

    def post() -> None:
        with requests.Session() as session:
            session.trust_env = False
            for _ in range(number):
                session.post(url, data=_BODY, headers=_HEADERS, timeout=10).raise_for_status()

    started = [threading.Thread(target=post) for _ in range(threads)]
    began = time.monotonic()
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    sys.stdout.write(f"{number * threads / (time.monotonic() - began)}\n")


if __name__ == "__main__":
    main()
