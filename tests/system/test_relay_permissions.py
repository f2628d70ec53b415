"""What one gateway can do to another on a NATS server with the permissions that the documentation shows."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout

from gateway_relay.messages import make_event
from gateway_relay.publisher import Publisher
from gateway_relay.spool import Spool
from tests.support.manual import steps
from tests.support.nats import STREAM, NatsServer, find_public_key, make_seed, running_nats

T = TypeVar("T")

SECTION = "Permissions on the NATS servers"
KEYS = ("KEY_OF_ADMINISTRATOR", "KEY_OF_BNG_1", "KEY_OF_BNG_2")
BOOT = "84a7e8343baf37f9"


SEEDS = {key: make_seed() for key in KEYS}
ADMINISTRATOR, BNG_1, BNG_2 = SEEDS.values()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    text = steps("explanation/relay.md", "text")[SECTION]
    for key, seed in SEEDS.items():
        assert key in text
        text = text.replace(key, find_public_key(seed))
    folder = tmp_path_factory.mktemp("nats")
    with running_nats(folder, text, login={"nkeys_seed_str": ADMINISTRATOR}) as server:
        server.add_stream()
        yield server


class Refusals(list[str]):
    """Errors that the server sent to a connection."""

    async def add(self, error: Exception) -> None:
        self.append(str(error))


def attack(
    server: NatsServer, work: Callable[[Client], Awaitable[T]], seed: str = BNG_1, name: str = "bng-1"
) -> tuple[T, Refusals]:
    """Return what `work` returns for a connection of a gateway, and the errors of the server."""
    refusals = Refusals()

    async def run() -> T:
        connection = await nats.connect(
            server.url, nkeys_seed_str=seed, inbox_prefix=f"_INBOX.{name}", error_cb=refusals.add
        )
        try:
            result = await work(connection)
            # nats-py sends a ping before messages that wait. Errors come before the reply to the second one.
            await connection.flush()
            await connection.flush()
            return result
        finally:
            await connection.close()

    return asyncio.run(run()), refusals


def publish_as_bng_2(server: NatsServer, folder: Path, number: int) -> None:
    """Publish an event as the relay of bng-2 does."""
    spool = Spool(folder / f"spool-{number}", 1 << 20)
    spool.add_event(make_event(f"{BOOT}-{number - 1}", "session_up", {}))
    (snapshot,) = spool.read(1)
    spool.remove([snapshot])
    spool.add_event(make_event(f"{BOOT}-{number}", "session_up", {"id": number}))

    async def publish(connection: Client) -> None:
        await Publisher(spool, connection, "bng-2", None).publish_window()  # type: ignore[arg-type]
        assert not spool.read(1)

    attack(server, publish, BNG_2, "bng-2")


def list_data(server: NatsServer, subject: str) -> list[Any]:
    return [message.data for message in server.list_messages(subject)]


def test_a_gateway_publishes_to_its_own_subjects(server: NatsServer) -> None:
    acknowledgement, refusals = attack(
        server, lambda connection: connection.jetstream().publish("gw.bng-1.commits", b"{}")
    )
    assert acknowledgement.stream == STREAM
    assert refusals == []


def test_a_gateway_cannot_publish_to_the_subjects_of_another(server: NatsServer) -> None:
    _, refusals = attack(
        server, lambda connection: connection.publish("gw.bng-2.events.session_up", b'{"id": 666}')
    )
    assert ["permissions violation for publish" in text for text in refusals] == [True]
    assert {"id": 666} not in list_data(server, "gw.bng-2.>")


@pytest.mark.parametrize("subject", [">", "gw.>", "gw.bng-2.>", "gw.bng-1.>", "_INBOX.>", "_INBOX.bng-2.>"])
def test_a_gateway_cannot_read_what_others_publish(server: NatsServer, tmp_path: Path, subject: str) -> None:
    received = []

    async def receive(message: Any) -> None:
        received.append(message)

    async def subscribe(connection: Client) -> None:
        await connection.subscribe(subject, cb=receive)
        await connection.flush()
        await asyncio.to_thread(publish_as_bng_2, server, tmp_path, 1)

    _, refusals = attack(server, subscribe)
    assert ["permissions violation for subscription" in text for text in refusals] == [True]
    assert received == []


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("STREAM.PURGE.gateways", b"{}"),
        ("STREAM.MSG.DELETE.gateways", b'{"seq": 1}'),
        ("STREAM.MSG.GET.gateways", b'{"seq": 1}'),
        ("STREAM.UPDATE.gateways", b'{"name": "gateways", "subjects": ["none"]}'),
        ("STREAM.DELETE.gateways", b""),
        ("STREAM.CREATE.own", b'{"name": "own", "subjects": ["gw.bng-2.own"]}'),
        ("CONSUMER.CREATE.gateways", b'{"stream_name": "gateways", "config": {"ack_policy": "none"}}'),
    ],
)
def test_a_gateway_cannot_use_the_interface_of_jetstream(
    server: NatsServer, tmp_path: Path, method: str, body: bytes
) -> None:
    publish_as_bng_2(server, tmp_path, 1)
    before = server.list_messages()

    async def call(connection: Client) -> None:
        with pytest.raises(NatsTimeout):
            await connection.request(f"$JS.API.{method}", body, timeout=0.5)

    _, refusals = attack(server, call)
    assert ["permissions violation for publish" in text for text in refusals] == [True]
    assert server.list_messages() == before


@pytest.mark.parametrize("suffix", ["", "-0123456789abcdef"])
def test_a_gateway_cannot_suppress_a_message_of_another(
    server: NatsServer, tmp_path: Path, suffix: str
) -> None:
    number = 1000 + len(suffix)
    headers = {"Nats-Msg-Id": f"bng-2-{BOOT}-{number}{suffix}"}

    async def publish(connection: Client) -> None:
        await connection.jetstream().publish("gw.bng-1.commits", b"{}", headers=headers)

    attack(server, publish)
    publish_as_bng_2(server, tmp_path, number)
    assert {"id": number} in list_data(server, "gw.bng-2.>")


@pytest.mark.parametrize(
    "headers",
    [
        {"Nats-Rollup": "all"},
        {"Nats-Rollup": "sub"},
        {"Nats-Schedule": "@at 2026-01-01T00:00:00Z", "Nats-Schedule-Target": "gw.bng-2.commits"},
        {"Nats-TTL": "1s"},
        {"Nats-Batch-Id": "one", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
    ],
)
def test_a_header_gives_a_gateway_no_power_over_the_stream(
    server: NatsServer, tmp_path: Path, headers: dict[str, str]
) -> None:
    publish_as_bng_2(server, tmp_path, 1)
    before = server.list_messages()

    async def publish(connection: Client) -> None:
        with suppress(NatsError):
            await connection.jetstream().publish("gw.bng-1.commits", b"{}", headers=headers, timeout=1)

    attack(server, publish)
    after = server.list_messages()
    assert after[: len(before)] == before
    # A server that does not know a header takes the message as any other.
    assert {message.subject for message in after[len(before) :]} <= {"gw.bng-1.commits"}


@pytest.mark.parametrize("reply", ["gw.bng-2.commits", "$JS.API.STREAM.PURGE.gateways", "$JS.API.INFO"])
def test_the_confirmation_of_a_message_reaches_no_other_gateway_and_no_interface(
    server: NatsServer, tmp_path: Path, reply: str
) -> None:
    publish_as_bng_2(server, tmp_path, 1)
    before, log = server.list_messages(), server.log

    async def publish(connection: Client) -> None:
        await connection.publish("gw.bng-1.commits", b"{}", reply=reply)
        # A second message, after whose confirmation that of the first one has arrived.
        await connection.jetstream().publish("gw.bng-1.commits", b"{}")

    attack(server, publish)
    after = server.list_messages()
    assert after[: len(before)] == before
    assert [message.subject for message in after[len(before) :]] == ["gw.bng-1.commits"] * 2
    assert "Invalid JetStream request" not in server.log.removeprefix(log)


@pytest.mark.parametrize("seed", [None, make_seed()], ids=["no key", "an unknown key"])
def test_a_program_without_a_known_key_cannot_connect(server: NatsServer, seed: str | None) -> None:
    async def connect() -> None:
        connection = Client()
        with pytest.raises(nats.errors.Error, match="Authorization Violation"):
            await connection.connect(server.url, nkeys_seed_str=seed, allow_reconnect=False)
        await connection.close()

    asyncio.run(connect())
