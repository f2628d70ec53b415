"""Publisher of the relay: sends the entries of the spool to JetStream, in their order.

Many messages are on their way at a time. An entry is removed when JetStream has acknowledged its message, and
sent again until then. So JetStream may store a message after later ones. A consumer notices this by the ids
of the events, which are consecutive. While a snapshot is published, nothing else is.
"""

import asyncio
import logging
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from nats.aio.client import Client as NatsConnection
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from gateway_client.errors import ClientError
from gateway_relay.messages import EVENT_HEADER, ID_HEADER, Message, Snapshot, make_part, make_published_id
from gateway_relay.spool import Entry, Spool

#: Messages that are on their way at a time.
_WINDOW = 500
#: Seconds without an acknowledgement until messages are sent again. They double with each such wait, because
#: the servers may be busy with the messages of a hundred relays, and halve with each window that arrives.
_MIN_SILENCE_SECONDS, _MAX_SILENCE_SECONDS = 2.0, 16.0
#: Seconds between two looks at the connection, and after a failure until the next attempt.
_LOOK_SECONDS, _RETRY_SECONDS = 0.25, 0.5
#: Bytes of the headers, which count for the server's limit of a message.
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
        self._key: bytes | None = None
        #: Entries whose messages were acknowledged, and which are still in the spool.
        self._published: Sequence[Entry] = ()
        self._has_failed = False
        self._silence_seconds = _MIN_SILENCE_SECONDS

    async def run(self) -> None:
        """Publish the entries of the spool and those that are added. Return when the NATS server has closed
        the connection for good."""
        loop, added = asyncio.get_running_loop(), asyncio.Event()
        self._spool.notify = lambda: loop.call_soon_threadsafe(added.set)
        while not self._connection.is_closed:
            added.clear()
            try:
                has_more = await self.publish_window()
            except (NatsError, NotPublished, ClientError, OSError, sqlite3.Error) as error:
                if not self._has_failed:
                    _log.warning("cannot publish, new messages wait in the spool: %s", error)
                self._has_failed = True
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if self._has_failed:
                _log.info("publishing again")
                self._has_failed = False
            while not (has_more or added.is_set() or self._connection.is_closed):
                with suppress(TimeoutError):
                    await asyncio.wait_for(added.wait(), _LOOK_SECONDS)

    async def publish_window(self) -> bool:
        """Publish the oldest entries. Return True if there may be more of them. Raises an error of NATS or
        NotPublished if an entry was not published, ClientError if a snapshot could not be read from the
        gateway, and OSError or sqlite3.Error if the spool cannot be used."""
        # On a full disk, entries stay that were acknowledged.
        self._remove_published()
        entries = self._spool.read(_WINDOW)
        if not entries:
            return False
        first = entries[0].content
        if isinstance(first, Snapshot):
            await self._publish_snapshot(first)
            self._published = entries[:1]
            self._remove_published()
            return True
        window = []
        for entry in entries:
            if isinstance(entry.content, Snapshot):
                break
            if not self._drop_if_too_large(entry, entry.content):
                window.append((entry, entry.content))
        errors = await self._send([message for _, message in window])
        self._published = [entry for (entry, _), error in zip(window, errors, strict=True) if error is None]
        self._remove_published()
        for error in filter(None, errors):
            raise error
        return len(window) < len(entries) or len(entries) == _WINDOW

    def _remove_published(self) -> None:
        if self._published:
            self._spool.remove(self._published)
            self._published = ()

    def _drop_if_too_large(self, entry: Entry, message: Message) -> bool:
        is_too_large = self._is_too_large(message)
        if is_too_large:
            _log.error("dropped %s, which is larger than max_payload of the NATS server", message.id)
            self._spool.remove([entry])
        return is_too_large

    def _is_too_large(self, message: Message) -> bool:
        return len(message.body) + _HEADER_BYTES > self._connection.max_payload

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
        if self._key is None:
            self._key = self._spool.read_key()
        futures: list[Future] = []
        try:
            for message in messages:
                futures += [await self._start(message, self._key)]
            await self._wait_for_acknowledgements(futures)
            return [self._find_error(future) for future in futures]
        finally:
            # nats-py keeps a future without an acknowledgement until it has ended.
            for future in futures:
                future.cancel()

    async def _wait_for_acknowledgements(self, futures: Collection[Future]) -> None:
        """Wait until all futures are done, none of them becomes done any more, or the connection was lost:
        the acknowledgements are lost with the connection."""
        reconnects = self._connection.stats["reconnects"]
        end = time.monotonic() + self._silence_seconds
        while futures:
            done, futures = await asyncio.wait(futures, timeout=_LOOK_SECONDS)
            if done:
                end = time.monotonic() + self._silence_seconds
            elif time.monotonic() > end:
                self._silence_seconds = min(2 * self._silence_seconds, _MAX_SILENCE_SECONDS)
                return
            if not self._connection.is_connected or self._connection.stats["reconnects"] != reconnects:
                return
        self._silence_seconds = max(self._silence_seconds / 2, _MIN_SILENCE_SECONDS)

    async def _start(self, message: Message, key: bytes) -> Future:
        if not self._connection.is_connected:
            raise NotPublished("no connection to a NATS server")
        if self._is_too_large(message):
            raise NotPublished(
                f"{message.id} is larger than max_payload of the NATS server: raise max_payload"
            )
        headers = {ID_HEADER: make_published_id(self._name, message.id, key)}
        if message.event is not None:
            headers[EVENT_HEADER] = message.event
        return await self._jetstream.publish_async(
            f"gw.{self._name}.{message.subject}", message.body, headers=headers
        )

    def _find_error(self, future: Future) -> BaseException | None:
        if future.done():
            return future.exception()
        return NotPublished(
            f"no acknowledgement from JetStream: check the stream, and the permissions for gw.{self._name}.>"
        )
