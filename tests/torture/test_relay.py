"""Relays, gateways, NATS servers and a consumer that are killed, cut off and put on full disks."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nats
import pytest

from gateway_relay.messages import Message, Reason
from gateway_relay.publisher import Publisher
from gateway_relay.spool import Spool
from tests.support.nats import running_nats
from tests.support.troubled_fleet import Disk, troubled_fleet

KINDS = (
    "kill_relay",
    "kill_core",
    "kill_leader",
    "kill_consumer",
    "cut_relay_from_nats_for_an_hour",
    "fill_spool",
    "fill_disk_of_spool",
    "fill_disk_of_store",
    "fill_disk_of_database",
)


def test_no_event_is_lost_or_applied_twice(tmp_path: Path) -> None:
    with troubled_fleet(tmp_path, seed=1, gateways=2) as fleet:
        for kind in random.Random(1).sample(KINDS, len(KINDS)):
            fleet.trouble(kind)
        print(fleet.report())
        assert fleet.count_disorder()["stored again"] == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """The folder "spool" on a file system of 16 MiB."""
    with ExitStack() as stack:
        yield Disk(tmp_path / "spool", 16, stack)


@pytest.fixture
def spool(disk: Disk, tmp_path: Path) -> Spool:
    """A spool that is larger than its disk."""
    spool = Spool(tmp_path / "spool" / "spool.sqlite", 256 << 20)
    spool.add_snapshot(Reason.FIRST_CONTACT, "boot-0")
    spool.remove(spool.read(1))
    return spool


def make_event(number: int) -> Message:
    return Message(f"boot-{number}", "events.session_up", b"x" * 1000, f"boot-{number}")


def test_a_spool_that_has_filled_its_disk_can_be_emptied(spool: Spool) -> None:
    def fill() -> int:
        for number in range(1, 1 << 20):
            try:
                spool.add_event(make_event(number))
            except OSError as error:
                assert "less than 8 MiB free" in str(error)
                return number - 1
        raise AssertionError("never full")

    count = fill()
    removed = 0
    while entries := spool.read(500):
        spool.remove(entries)
        removed += len(entries)
    assert removed == count > 0
    assert fill() > 0


def test_while_the_disk_is_full_no_message_is_published_again(
    spool: Spool, disk: Disk, tmp_path: Path
) -> None:
    for number in range(1, 11):
        spool.add_event(make_event(number))

    async def list_sessions() -> AsyncIterator[Any]:
        yield []

    async def publish(url: str) -> None:
        connection = await nats.connect(url)
        publisher = Publisher(spool, connection, "bng1", list_sessions)
        disk.fill()
        for _ in range(3):
            with pytest.raises((OSError, sqlite3.Error)):
                await publisher.publish_window()
        assert connection.stats["out_msgs"] == 10
        disk.free()
        assert not await publisher.publish_window()
        await connection.close()

    with running_nats(tmp_path / "nats") as server:
        server.add_stream()
        asyncio.run(publish(server.url))
    assert spool.read(1) == []
