"""Measurement of `search` on the list of sessions: `python -m tools.figures_of_search [SESSIONS]`."""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.stack import Api, running_stack

_SESSION_COUNT = 200_000
_SEARCH_COUNT = 200
#: What a user types to find a session.
_SEARCH_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "part of a username": lambda session: str(session["username"])[3:16].upper(),
    "MAC address with dashes": lambda session: str(session["mac_address"]).replace(":", "-"),
    "part of a MAC address": lambda session: str(session["mac_address"])[9:],
    "IPv4 address": lambda session: str(session["ip_address"]),
    "IPv4 prefix": lambda session: str(session["ip_address"]).rpartition(".")[0] + ".0/24",
    "IPv6 prefix": lambda session: str(session["ipv6_prefix"]),
    "interface": lambda session: str(session["interface"]),
    "session id": lambda session: str(session["id"]),
    "nothing that is there": lambda session: f"nobody{session['id']}",
}


def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else _SESSION_COUNT
    with TemporaryDirectory() as folder, running_stack(Path(folder) / "state", sessions) as (api, _):
        dice = random.Random(1)
        sample = [
            session
            for session in _sample_sessions(api, sessions, dice)
            if session["ip_address"] and session["ipv6_prefix"]
        ]
        for name, create_text in _SEARCH_TEXTS.items():
            durations = sorted(
                _measure_search(api, create_text(dice.choice(sample))) for _ in range(_SEARCH_COUNT)
            )
            p50, p99 = (durations[int(_SEARCH_COUNT * part)] for part in (0.5, 0.99))
            print(f"{name}: p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms")


def _sample_sessions(api: Api, sessions: int, dice: random.Random) -> list[dict[str, Any]]:
    """Return a random sample of the `sessions` sessions. Each record has all fields that a search
    compares."""
    ids = dice.sample(range(1, sessions + 1), 300)
    pages = [api.get("/subscribers", params={"search": str(id), "limit": 10})["sessions"] for id in ids]
    return [session for page in pages for session in page]


def _measure_search(api: Api, text: str) -> float:
    start_time = time.perf_counter()
    response = api.send("GET", "/subscribers", "operator", params={"search": text, "limit": 20})
    duration = time.perf_counter() - start_time
    assert response.status_code == 200, (text, response.text)
    return duration


if __name__ == "__main__":
    main()
