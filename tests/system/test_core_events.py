"""The events of a core daemon, as varlink clients follow them."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.core.interface import CORE
from gateway_contract.varlink.client import Client
from gateway_contract.varlink.protocol import ErrorReply
from tests.support.stack import PATIENCE, running_core, wait_for

METHOD = f"{CORE.name}.SubscribeEvents"


@contextmanager
def core(folder: Path, document: dict[str, Any], *arguments: str) -> Iterator[tuple[Path, int]]:
    """The socket of a core, and its process."""
    (folder / "factory.json").write_text(json.dumps(document))
    with running_core(folder / "core.sock", folder / "factory.json", *arguments) as process:
        yield folder / "core.sock", process.pid


@contextmanager
def followed(path: Path, boot_id: str | None, after: int | None) -> Iterator[Iterator[dict[str, Any]]]:
    client = Client(path, timeout=PATIENCE)
    wanted = {"boot_id": boot_id, "after_sequence": after}
    with closing(client.stream(METHOD, wanted, silence=PATIENCE)) as replies:
        yield (msgspec.json.decode(reply) for reply in replies)


def collected(replies: Iterator[dict[str, Any]], number: int) -> list[int]:
    """Sequences of at least so many events; none of the replies may tell of a gap."""
    found: list[int] = []
    while len(found) < number:
        reply = next(replies)
        assert not reply["gap"]
        found += (event["sequence"] for event in reply["events"])
    return found


def test_a_core_s_events_can_be_resumed_exactly_in_one_life(tmp_path: Path, document: dict[str, Any]) -> None:
    with core(tmp_path, document, "--arrivals", "300") as (path, _):
        with followed(path, None, None) as replies:
            boot_id = next(replies)["boot_id"]
            found = collected(replies, 200)
        with followed(path, boot_id, found[-1]) as replies:
            found += collected(replies, 200)
        with followed(path, boot_id, 0) as replies:
            everything = collected(replies, found[-1])
        for parameters, name in (
            ({"after_sequence": -1}, "org.varlink.service.InvalidParameter"),
            ({"since": 1}, "org.varlink.service.InvalidParameter"),
        ):
            with pytest.raises(ErrorReply) as refusal:
                next(Client(path, timeout=PATIENCE).stream(METHOD, parameters, silence=PATIENCE))
            assert refusal.value.name == name
        with closing(Client(path, timeout=PATIENCE)) as client, pytest.raises(ErrorReply) as refusal:
            client.call(METHOD, {})
        assert refusal.value.name == "org.varlink.service.ExpectedMore"
    assert found == list(range(found[0], found[0] + len(found)))
    assert everything == list(range(1, len(everything) + 1))
    with core(tmp_path, document, "--arrivals", "300") as (path, _), followed(path, boot_id, 3) as replies:
        gap = next(replies)
        assert gap["boot_id"] != boot_id
        assert (gap["gap"], gap["events"]) == (True, [])
        assert collected(replies, 20)[0] == gap["newest"] + 1


def test_the_core_lets_followers_who_have_left_go_though_nothing_happens(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    with core(tmp_path, document, "--sessions", "5", "--arrivals", "0") as (path, pid):
        threads = Path(f"/proc/{pid}/task")
        with ExitStack() as stack:
            for _ in range(20):
                next(stack.enter_context(followed(path, None, None)))
            most = len(list(threads.iterdir()))
            assert most > 20
        wait_for("their threads to end", lambda: len(list(threads.iterdir())) == most - 20)
