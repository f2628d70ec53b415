"""The process: threads for work that blocks, file descriptors, and readiness for systemd (sd_notify(3))."""

import ctypes
import gc
import logging
import os
import resource
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

#: Descriptors for other purposes: files, pipes, databases, connections to the core and to the hub.
_OWN = 64

#: Parameters of mallopt(3), from malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_log = logging.getLogger(__name__)


class ThreadPool(Protocol):
    """Runs a function on a thread, while other greenlets continue (gevent's ThreadPool)."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any: ...


def on_thread(pool: ThreadPool, function: Callable[..., T], *arguments: Any) -> T:
    """The result of a function that blocks. Raises its exceptions."""
    # gevent prints an exception that leaves a function on a thread.
    outcome: T | Exception = pool.apply(_outcome, (function, *arguments))
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _outcome(function: Callable[..., T], *arguments: Any) -> T | Exception:
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - raised in the caller's thread
        return error


def keep_loaded() -> None:
    """Exempts what the process has loaded from garbage collection, for good. That makes collections shorter,
    and the end of the process. Not for what must be closed at the end, such as a database."""
    gc.freeze()


def return_large_objects() -> None:
    """Lets malloc return the memory of an object of 128 KiB or more when it is freed (mallopt(3)). By default
    glibc raises that size up to 32 MiB: then the parts of a long list leave holes between small objects, and
    the process keeps twice the memory that it needs."""
    libc = ctypes.CDLL(None)
    if not (
        libc.mallopt(_M_MMAP_THRESHOLD, 128 << 10)
        # A lower one would return memory and request it again with each response.
        and libc.mallopt(_M_TRIM_THRESHOLD, 1 << 20)
    ):
        _log.warning("malloc refuses its thresholds: after a long list the process keeps its memory")


def places(most: int) -> int:
    """The number of clients of one kind, at most `most`, that the limit of descriptors (getrlimit(2)) allows.
    A process has two kinds: for requests, and for streams of events. A worker inherits open descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # One of them is for this folder.
    now_open = len(list(Path("/proc/self/fd").iterdir())) - 1
    return max(1, min(most, (limit - now_open - _OWN) // 2))


def notify(address: str) -> None:
    """Reports readiness to the socket that `NOTIFY_SOCKET` names."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as systemd:
        systemd.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)


class Readiness:
    """Reports readiness when the first worker serves requests. The arbiter does it, as systemd ignores its
    children. gunicorn's own report comes too early, when the arbiter listens."""

    def __init__(self) -> None:
        self._serving: int | None = None

    def take_over(self) -> None:
        """To be called before the first fork, and before gunicorn reads `NOTIFY_SOCKET`."""
        address = os.environ.pop("NOTIFY_SOCKET", None)
        if address is not None:
            self._serving = os.eventfd(0)
            threading.Thread(target=self._report, args=(address, self._serving), daemon=True).start()

    def serves(self) -> None:
        """A worker serves requests. Calls after its first do nothing."""
        if self._serving is not None:
            os.eventfd_write(self._serving, 1)
            self._serving = None

    def _report(self, address: str, serving: int) -> None:
        os.eventfd_read(serving)
        try:
            notify(address)
        except OSError as error:
            _log.error("cannot report readiness to systemd: %s", error)
