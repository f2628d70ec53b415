"""The process: threads for work that blocks, file descriptors, and reports to systemd (sd_notify(3))."""

import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

#: Descriptors that clients leave for other purposes: files, pipes, databases, connections to the core and the
#: hub.
_OWN = 64

#: Parameters of mallopt(3), from malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_log = logging.getLogger(__name__)


class ThreadPool(Protocol):
    """A pool that runs a function on a thread while other greenlets continue (gevent's ThreadPool)."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any: ...


def on_thread(pool: ThreadPool, function: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a function that blocks. Raises its exceptions."""
    # gevent prints each exception that leaves a function on a thread.
    outcome: T | Exception = pool.apply(_outcome, (function, *arguments))
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _outcome(function: Callable[..., T], *arguments: Any) -> T | Exception:
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - raised in the caller's thread
        return error


def has_signal(signals: Collection[signal.Signals], seconds: float) -> bool:
    """Wait for one of these signals, which must be blocked. Return True as soon as it comes, False after so
    many seconds."""
    received = signal.sigtimedwait(signals, seconds)
    # If the process was stopped (SIGSTOP) and continues after these seconds, Python 3.11 returns an empty
    # record.
    return received is not None and received.si_signo in signals


def keep_loaded() -> None:
    """Exempt all present objects from garbage collection, for good: collections and the end of the process
    become shorter. An object that must be closed at the end, such as a database, must not exist yet."""
    gc.freeze()


def return_large_objects() -> None:
    """Let malloc return the memory of an object of 128 KiB or more to the kernel when it is freed
    (mallopt(3)). By default glibc raises that size up to 32 MiB: then the parts of a long list leave holes
    between small objects, and the process keeps twice the memory that it needs."""
    libc = ctypes.CDLL(None)
    if not (
        libc.mallopt(_M_MMAP_THRESHOLD, 128 << 10)
        # A lower threshold would return memory and request it again with each response.
        and libc.mallopt(_M_TRIM_THRESHOLD, 1 << 20)
    ):
        _log.warning("malloc refuses its thresholds: after a long list the process keeps its memory")


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors, which exists for select(2), to the hard limit (getrlimit(2))."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def max_clients(most: int) -> int:
    """Return how many clients of one kind the limit of descriptors (getrlimit(2)) allows, at most `most`.
    There are two kinds of clients: of requests, and of event streams. A worker inherits open descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # One of the open descriptors is for this folder.
    now_open = len(list(Path("/proc/self/fd").iterdir())) - 1
    return max(1, min(most, (limit - now_open - _OWN) // 2))


def notify(address: str, state: bytes = b"READY=1") -> None:
    """Report readiness, or another state, to the socket that `NOTIFY_SOCKET` names. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as systemd:
        systemd.sendto(state, f"\0{address[1:]}" if address.startswith("@") else address)


class Watchdog:
    """The watchdog of systemd, which learns that a loop of this process runs. systemd ends and restarts a
    process that is silent for the unit's `WatchdogSec` (sd_watchdog_enabled(3))."""

    def __init__(self, address: str, limit: float) -> None:
        self._address = address
        #: Seconds between two reports.
        self.pause = limit / 4
        self._due = 0.0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Watchdog | None":
        """Return the watchdog; None if systemd expects no reports of this process."""
        address, limit = environment.get("NOTIFY_SOCKET"), environment.get("WATCHDOG_USEC", "")
        if address is None or not limit.isdecimal():
            return None
        if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        return cls(address, int(limit) / 1e6)

    def beat(self) -> None:
        """Report to systemd, at most once in `pause` seconds. The loop calls this in each round."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self.pause
        try:
            notify(self._address, b"WATCHDOG=1")
        except OSError as error:
            _log.error("cannot report to the watchdog of systemd: %s", error)


class Readiness:
    """The report of readiness to systemd, when the first worker serves requests. The arbiter sends the
    report, because systemd ignores its children. gunicorn's own report comes too early, when the arbiter
    listens."""

    def __init__(self) -> None:
        self._serving: int | None = None

    def take_over(self) -> None:
        """Take the report over from gunicorn: before the first fork, and before gunicorn reads
        `NOTIFY_SOCKET`."""
        address = os.environ.pop("NOTIFY_SOCKET", None)
        if address is not None:
            self._serving = os.eventfd(0)
            threading.Thread(target=self._report, args=(address, self._serving), daemon=True).start()

    def serves(self) -> None:
        """Note that a worker serves requests. Only the first call of a worker has an effect."""
        if self._serving is not None:
            os.eventfd_write(self._serving, 1)
            self._serving = None

    def _report(self, address: str, serving: int) -> None:
        os.eventfd_read(serving)
        try:
            notify(address)
        except OSError as error:
            _log.error("cannot report readiness to systemd: %s", error)
