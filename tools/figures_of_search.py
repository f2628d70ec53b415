"""Measurement of `search` on the list of sessions: `python -m tools.figures_of_search [SESSIONS]`."""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.stack import Api, running_stack

_SESSIONS = 200_000
_SEARCHES = 200
#: What a user types to find a session.
_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "part of a username": lambda one: str(one["username"])[3:16].upper(),
    "MAC address with dashes": lambda one: str(one["mac_address"]).replace(":", "-"),
    "part of a MAC address": lambda one: str(one["mac_address"])[9:],
    "IPv4 address": lambda one: str(one["ip_address"]),
    "IPv4 prefix": lambda one: str(one["ip_address"]).rpartition(".")[0] + ".0/24",
    "IPv6 prefix": lambda one: str(one["ipv6_prefix"]),
    "interface": lambda one: str(one["interface"]),
    "session id": lambda one: str(one["id"]),
    "nothing that is there": lambda one: f"nobody{one['id']}",
}


def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else _SESSIONS
    with TemporaryDirectory() as folder, running_stack(Path(folder) / "state", sessions) as (api, _):
        dice = random.Random(1)
        chosen = [one for one in _some(api, sessions, dice) if one["ip_address"] and one["ipv6_prefix"]]
        for name, text_of in _TEXTS.items():
            taken = sorted(_seconds(api, text_of(dice.choice(chosen))) for _ in range(_SEARCHES))
            p50, p99 = (taken[int(_SEARCHES * part)] for part in (0.5, 0.99))
            print(f"{name}: p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms")


def _some(api: Api, sessions: int, dice: random.Random) -> list[dict[str, Any]]:
    """Return a random sample of the sessions, each with all fields that a search compares."""
    ids = dice.sample(range(1, sessions + 1), 300)
    found = [api.get("/subscribers", params={"search": str(id), "limit": 10})["sessions"] for id in ids]
    return [one for some in found for one in some]


def _seconds(api: Api, text: str) -> float:
    began = time.perf_counter()
    answer = api.send("GET", "/subscribers", "operator", params={"search": text, "limit": 20})
    taken = time.perf_counter() - began
    assert answer.status_code == 200, (text, answer.text)
    return taken


if __name__ == "__main__":
    main()
