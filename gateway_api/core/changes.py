"""What was changed by anybody but the API, kept on disk until there is too much of it.

The API records what it does itself, and passes the id of its request on with each change. Whatever comes
without one is noted here, and so is what the core does by itself, for the API to record later. Any thread
may call.
"""

import json
import logging
import pwd
import secrets
import threading
from pathlib import Path
from typing import Any

import msgspec

from gateway_api.base import durable
from gateway_api.base.ring import Ring
from gateway_api.base.segments import Segments
from gateway_api.wire.core import Change, ChangesReply
from gateway_api.wire.varlink.peer import Peer

_log = logging.getLogger(__name__)

#: Changes that are kept, and the files and bytes that they take at the most: room for as many of the largest,
#: beside a file that has just begun.
HELD = 4096
_FILES, _BYTES = 8, 32 << 20
#: Changes in one reply.
_AT_ONCE = 100
#: The most characters that what was before, and what is now, take as JSON.
_MOST = 2048


class Caller(msgspec.Struct, frozen=True):
    """Who changes something, and what it is called. Without a `peer` it is the core itself."""

    action: str
    peer: Peer | None = None


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change that happened. The `id` tells it from any other; `before` and `after` have no secrets. `user`
    is a number, whose name is looked up when the change is told: here a change is under way."""

    id: str
    at: int
    action: str
    user: int | None
    process: int | None
    author: str | None = None
    comment: str | None = None
    before: Any = None
    after: Any = None

    @classmethod
    def of(
        cls,
        caller: Caller,
        at: float,
        *,
        before: Any = None,
        after: Any = None,
        author: str | None = None,
        comment: str | None = None,
    ) -> "Note":
        """`at` is epoch seconds."""
        return cls(
            id=secrets.token_hex(8),
            at=int(at),
            action=caller.action,
            user=None if caller.peer is None else caller.peer.user,
            process=None if caller.peer is None else caller.peer.process,
            author=author,
            comment=comment,
            before=_bounded(before),
            after=_bounded(after),
        )


class _Kept(msgspec.Struct, frozen=True):
    sequence: int
    note: Note
    #: The id of the last note that was settled, up to this one.
    settled: str


class ChangeLog:
    """The changes in a folder, which is made with the first. `name` tells them from those of another core.

    Raises OSError if what is there can't be read.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._segments = Segments(folder, "changes", size=_BYTES // _FILES, kept=_FILES)
        self._lock = threading.Lock()
        self._waiting: list[tuple[Note, str]] = []
        self._settled = ""
        self._held: Ring[_Kept] = Ring(HELD)
        if folder.is_dir():
            self._read()

    def add(self, note: Note) -> None:
        """Keeps a change. If the disk refuses, it is tried again with the next one, and whenever somebody
        asks."""
        with self._lock:
            self._waiting.append((note, self._settled))
            self._write()

    def settle(self, note: Note) -> None:
        """Keeps a change that is on disk elsewhere, too, unless it is the last one that came by this way:
        after a crash nobody knows whether it was kept."""
        with self._lock:
            if note.id != self._settled:
                self._settled = note.id
                self._waiting.append((note, note.id))
            self._write()

    def after(self, name: str | None, sequence: int) -> ChangesReply:
        """What followed a change of the core of that name, from the oldest that is held if that is gone;
        for another name, everything that is held. Nothing is told before it is safe on disk."""
        with self._lock:
            self._write()
            held = self._held
            start = sequence if name == self._name else 0
            start = min(max(start, held.oldest - 1), held.newest)
            changes = tuple(_change(kept) for kept in held.after(start, _AT_ONCE) or ())
            return ChangesReply(self._name, held.oldest, held.newest, changes)

    def _write(self) -> None:
        if not self._waiting:
            return
        first = self._held.newest + 1
        kept = [_Kept(number, *waiting) for number, waiting in enumerate(self._waiting, first)]
        try:
            durable.make_folder(self._folder)
            self._segments.append(b"".join(msgspec.json.encode(one) + b"\n" for one in kept))
        except OSError as error:
            _log.critical(
                "cannot note %d changes, the last of which is %s by %s: %s",
                *(len(kept), kept[-1].note.action, _name(kept[-1].note.user), error),
            )
            return
        self._waiting.clear()
        for one in kept:
            self._held.add(one)

    def _read(self) -> None:
        found: list[_Kept] = []
        for _, line in self._segments.newest_first(self._segments.end):
            try:
                found.append(msgspec.json.decode(line, type=_Kept))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                # The beginning of a line whose writer died.
                continue
            if len(found) == HELD:
                break
        for one in reversed(found):
            if self._held.newest == 0:
                self._held = Ring(HELD, one.sequence - 1)
            # Twice in the files is what was written again because its sync had failed.
            if one.sequence == self._held.newest + 1:
                self._held.add(one)
                self._settled = one.settled


def _change(kept: _Kept) -> Change:
    note = kept.note
    return Change(
        sequence=kept.sequence,
        at=note.at,
        action=note.action,
        user=_name(note.user),
        process=note.process,
        author=note.author,
        comment=note.comment,
        before=note.before,
        after=note.after,
    )


def _name(user: int | None) -> str:
    if user is None:
        return "core"
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _bounded(value: Any) -> Any:
    plain = msgspec.to_builtins(value)
    text = json.dumps(plain)
    if len(text) <= _MOST:
        return plain
    return {"cut": True, "characters": len(text), "beginning": text[: _MOST // 2]}
