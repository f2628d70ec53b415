"""The core's events, followed through whatever happens to the core or the connection.

Nothing is lost silently: after a break it goes on behind the last event that was seen, and where the core
no longer holds that, a batch says so.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import msgspec

from gateway_api.base.errors import CoreUnavailable
from gateway_api.daemon.calls import INTERFACE, decoded
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.message import ErrorReply

_log = logging.getLogger(__name__)

#: The core says something every 15 s.
_SILENCE = 40.0
_PAUSE = 0.2


class Event(msgspec.Struct, frozen=True, gc=False):
    """`at` is epoch seconds; `reason` and what follows it are of a session.down only."""

    sequence: int
    event: Literal["session.up", "session.down"]
    at: int
    id: int
    type: Literal["PPPoE", "DHCP"]
    username: str
    ip_address: str
    interface: str
    mac_address: str
    access_interface: str
    reason: str | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    duration_seconds: int | None = None

    def added(self) -> dict[str, object]:
        """What its data has in the stream and for webhooks alike, after the fields of each."""
        data: dict[str, object] = {
            "at": self.at,
            "mac_address": self.mac_address,
            "access_interface": self.access_interface,
        }
        if self.event == "session.down":
            data.update(
                bytes_in=self.bytes_in,
                bytes_out=self.bytes_out,
                duration_seconds=self.duration_seconds,
            )
        return data


class Batch(msgspec.Struct, frozen=True):
    """Events in their order. A `gap`: some are not held any more, what comes next comes after `newest`.
    `oldest` and `newest` are what the core holds; `boot_id` is of its life."""

    boot_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-z]{1,64}$")]
    oldest: int
    newest: int
    gap: bool
    events: list[Event]


class Events:
    """Follows at the socket of `client`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def after(self, boot_id: str, sequence: int) -> Iterator[Batch]:
        """Batches that follow an event. Ends with CoreUnavailable."""
        return self._batches(boot_id, sequence)

    def for_ever(
        self, pause: Callable[[float], None], *, behind: int = 0, all_held: bool = False
    ) -> Iterator[Batch]:
        """Batches from now on, and the last events before now, `behind` at the most. Between a break and the
        next try it calls `pause` with seconds. With `all_held`, it goes on after a gap with the oldest event
        that is held, not with the next to come."""
        boot_id: str | None = None
        last: int | None = None
        told = False
        while True:
            try:
                for batch in self._batches(boot_id, last):
                    told = False
                    if boot_id is None and behind:
                        boot_id, last = batch.boot_id, max(batch.oldest - 1, batch.newest - behind)
                        break
                    yield batch
                    boot_id = batch.boot_id
                    if batch.gap and all_held:
                        last = batch.oldest - 1
                        break
                    if batch.events:
                        last = batch.events[-1].sequence
                    elif batch.gap or last is None:
                        last = batch.newest
                else:
                    pause(_PAUSE)
            except CoreUnavailable as error:
                (_log.debug if told else _log.warning)("cannot follow the core's events: %s", error)
                told = True
                pause(_PAUSE)

    def _batches(self, boot_id: str | None, sequence: int | None) -> Iterator[Batch]:
        wanted = {"boot_id": boot_id, "after_sequence": sequence}
        try:
            for raw in self._client.stream(f"{INTERFACE}.SubscribeEvents", wanted, silence=_SILENCE):
                yield decoded(Batch, raw)
        except (Unreachable, ErrorReply) as error:
            raise CoreUnavailable(str(error)) from error
