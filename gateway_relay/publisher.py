"""Publisher of the relay: sends the entries of the spool to JetStream, in their order.

Many messages are on their way at a time. An entry is removed when JetStream has acknowledged its message, and
sent again until then. So JetStream may store a message after later ones. A consumer notices this by the ids
of the events, which are consecutive. A snapshot is on its way alone.
"""

import asyncio
import logging
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from itertools import takewhile
from typing import Any, TypeAlias

from nats.aio.client import Client as NatsConnection
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from gateway_client.errors import ClientError
from gateway_relay.messages import EVENT_HEADER, ID_HEADER, Message, Snapshot, make_part
from gateway_relay.spool import Spool

#: Messages that are on their way at a time, and seconds until they are sent again.
_WINDOW, _ACKNOWLEDGE_SECONDS = 500, 5.0
#: Seconds between two looks at the connection, and after a failure until the next attempt.
_LOOK_SECONDS, _RETRY_SECONDS = 0.25, 0.5
#: Bytes of the headers and the protocol, which count for the server's limit of a message.
_HEADER_BYTES = 1024

#: Acknowledgement of a message.
Future: TypeAlias = asyncio.Future[Any]
#: Returns the sessions of the gateway page by page, at least one page. Raises ClientError if the gateway does
#: not respond.
ListSessions = Callable[[], AsyncIterator[Sequence[Any]]]

_log = logging.getLogger("gateway_relay")


class NotPublished(Exception):
    """Error about messages that JetStream has not acknowledged."""


class Publisher:
    """Publisher of the entries of a spool, below the subject `gw.NAME`. `name` is the name of the
    gateway."""

    def __init__(
        self, spool: Spool, connection: NatsConnection, name: str, list_sessions: ListSessions
    ) -> None:
        self._spool = spool
        self._connection = connection
        self._jetstream: JetStreamContext = connection.jetstream()
        self._name = name
        self._list_sessions = list_sessions
        self._has_failed = False

    async def run(self) -> None:
        """Publish the entries of the spool and those that are added. Never returns."""
        loop, added = asyncio.get_running_loop(), asyncio.Event()
        self._spool.notify = lambda: loop.call_soon_threadsafe(added.set)
        while True:
            added.clear()
            try:
                has_published = await self.publish_window()
            except (NatsError, NotPublished, ClientError, OSError, sqlite3.Error) as error:
                if not self._has_failed:
                    _log.warning("cannot publish, new messages wait in the spool: %s", error)
                self._has_failed = True
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if has_published and self._has_failed:
                _log.info("publishing again")
                self._has_failed = False
            if not has_published:
                await added.wait()

    async def publish_window(self) -> bool:
        """Publish the oldest entries. Return False if there are none. Raises an error of NATS or NotPublished
        if an entry was not published, ClientError if a snapshot could not be read from the gateway, and
        OSError or sqlite3.Error if the spool cannot be used."""
        entries = self._spool.read(_WINDOW)
        if not entries:
            return False
        first = entries[0].content
        if isinstance(first, Snapshot):
            await self._publish_snapshot(first)
            self._spool.remove(entries[:1])
            return True
        run = list(takewhile(lambda entry: isinstance(entry.content, Message), entries))
        errors = await self._send([each.content for each in run if isinstance(each.content, Message)])
        self._spool.remove([entry for entry, error in zip(run, errors, strict=True) if error is None])
        for error in filter(None, errors):
            raise error
        return True

    async def _publish_snapshot(self, snapshot: Snapshot) -> None:
        attempt = secrets.token_hex(8)
        part, held = 0, None
        async for page in self._list_sessions():
            if held is not None:
                part += 1
                await self._publish(make_part(snapshot, attempt, part, held, is_last=False))
            held = page
        await self._publish(make_part(snapshot, attempt, part + 1, held or (), is_last=True))

    async def _publish(self, message: Message) -> None:
        (error,) = await self._send([message])
        if error is not None:
            raise error

    async def _send(self, messages: Sequence[Message]) -> list[BaseException | None]:
        """Send messages, and wait for their acknowledgements. Return the error of each message, or None."""
        if not self._connection.is_connected:
            raise NotPublished("no connection to a NATS server")
        limit = self._connection.max_payload - _HEADER_BYTES
        futures = [await self._start(each) if len(each.body) <= limit else None for each in messages]
        await self._wait_for_acknowledgements([future for future in futures if future is not None])
        for message, future in zip(messages, futures, strict=True):
            if future is None:
                _log.error(
                    "dropped the message %s: its %d bytes are more than the NATS server takes (max_payload)",
                    message.id,
                    len(message.body),
                )
        return [self._take_error(future) for future in futures]

    async def _wait_for_acknowledgements(self, futures: Collection[Future]) -> None:
        """Wait until all futures are done, the time is over, or the connection was lost: the
        acknowledgements are lost with the connection."""
        reconnects = self._connection.stats["reconnects"]
        end = time.monotonic() + _ACKNOWLEDGE_SECONDS
        while futures and time.monotonic() < end:
            _, futures = await asyncio.wait(futures, timeout=_LOOK_SECONDS)
            if not self._connection.is_connected or self._connection.stats["reconnects"] != reconnects:
                return

    async def _start(self, message: Message) -> Future:
        headers = {ID_HEADER: f"{self._name}-{message.id}"}
        if message.event is not None:
            headers[EVENT_HEADER] = message.event
        return await self._jetstream.publish_async(
            f"gw.{self._name}.{message.subject}", message.body, headers=headers
        )

    def _take_error(self, future: Future | None) -> BaseException | None:
        if future is None:
            return None
        if not future.done():
            # nats-py forgets a future that has ended, and takes no late acknowledgement for it.
            future.cancel()
            return NotPublished(
                "no acknowledgement from JetStream; check the stream, and the permissions for "
                f"gw.{self._name}.>"
            )
        return future.exception()
