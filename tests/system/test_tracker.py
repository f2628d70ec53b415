"""The sessions of accel-ppp through deaths of the core and of accel-ppp, each a process of its own."""

import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.accel import Peer
from tests.support.running_accel import Accel, running_accel
from tests.support.stack import wait_for
from tests.system.tracking import Tracking, running_tracker

ALICE = Peer("78fa5e68dbcd44c8", username="alice", uptime=60)
BOB = Peer("78fa5e68dbcd44c9", username="we|ird\r\n", ifname="ppp1", ip="100.64.0.11")


@pytest.fixture
def accel() -> Iterator[Accel]:
    with running_accel() as started:
        yield started


@pytest.fixture
def tracking(accel: Accel, tmp_path: Path) -> Iterator[Tracking]:
    with running_tracker(tmp_path, accel.cli) as started:
        wait_for("the hooks", lambda: (tmp_path / "hooks").exists())
        yield started


def hook(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"", str(folder / "hooks"))


def test_sessions_that_live_keep_id_and_rates_when_the_core_is_killed(
    accel: Accel, tracking: Tracking
) -> None:
    accel.up(ALICE, BOB)
    wait_for("the sessions", lambda: tracking.told("up") == [1, 2])
    tracking.set_rates(2, 7_000_000, 3_000_000)
    before = tracking.sessions()
    tracking.kill()
    accel.down(ALICE.sid)
    tracking.start()
    wait_for("the end of the one that is gone", lambda: tracking.told("down") == [1])
    wait_for("the other", lambda: tracking.states() == {2: "active"})
    assert tracking.sessions() == before[1:]
    assert tracking.told("up") == [1, 2]
    assert tracking.events[-1] == {"event": "down", "id": 1, "username": "alice", "reason": "unknown"}


def test_a_killed_accel_ppp_makes_sessions_stale_and_ends_them_when_it_is_back(
    accel: Accel, tracking: Tracking, tmp_path: Path
) -> None:
    accel.up(ALICE, BOB)
    wait_for("the sessions", lambda: tracking.told("up") == [1, 2])
    accel.kill()
    hook(tmp_path)
    wait_for("stale sessions", lambda: tracking.states() == {1: "stale", 2: "stale"})
    assert tracking.disconnect(1) == "The session is still connected: accel-ppp does not reply"
    # The core too: it knows them from its disk alone.
    tracking.kill()
    tracking.start()
    wait_for("stale sessions", lambda: tracking.states() == {1: "stale", 2: "stale"})
    accel.start()
    wait_for("their ends", lambda: tracking.told("down") == [1, 2])
    assert {event["reason"] for event in tracking.events if event["event"] == "down"} == {"unknown"}
    accel.up(ALICE)
    wait_for("a new session", lambda: tracking.told("up") == [1, 2, 3])


def test_a_disconnect_ends_the_session_before_it_returns(accel: Accel, tracking: Tracking) -> None:
    accel.up(ALICE, BOB)
    wait_for("the sessions", lambda: tracking.told("up") == [1, 2])
    assert tracking.disconnect(1) == "admin_disconnect"
    assert tracking.states() == {2: "active"}
    assert tracking.disconnect(1) is None
    accel.faults(deaf=True)
    still = "The session is still connected: not gone after 2.5 s, may end later"
    assert tracking.disconnect(2) == still
    assert [command for command in accel.commands() if command.startswith("terminate")] == [
        f"terminate sid {ALICE.sid} soft",
        f"terminate sid {BOB.sid} soft",
        f"terminate sid {BOB.sid} hard",
    ]


def test_kills_at_any_time_lose_no_event(accel: Accel, tracking: Tracking, tmp_path: Path) -> None:
    chance, number = random.Random(7), 0
    present: list[str] = []
    for _ in range(12):
        # It replies when it serves the hooks.
        tracking.states()
        for _ in range(chance.randrange(30)):
            number += 1
            present.append(f"{number:016x}")
            accel.up(Peer(present[-1], username=f"user{number}"))
        chance.shuffle(present)
        for _ in range(chance.randrange(min(25, len(present) + 1))):
            accel.down(present.pop())
        hook(tmp_path)
        # A poll begins after 50 ms, and takes some milliseconds.
        time.sleep(0.04 + chance.random() * 0.06)
        tracking.kill()
        tracking.start()
    wait_for(
        "all", lambda: len(tracking.sessions()) == len(present) and "stale" not in str(tracking.states())
    )
    ids = set(tracking.states())
    ups, downs = Counter(tracking.told("up")), Counter(tracking.told("down"))
    assert ups.keys() - downs.keys() == ids
    assert downs.keys() <= ups.keys()
    # Each kill may have come between an event and the disk: in the middle of one poll.
    assert max(ups.values()) <= 2 and max(downs.values(), default=0) <= 2
    names = {event["id"]: event["username"] for event in tracking.events}
    assert len(set(names.values())) == len(names)
    assert {names[id] for id in ids} == {f"user{int(sid, 16)}" for sid in present}
