"""Functions for the whole process: threads for blocking work, the limit of file descriptors, and reports to
systemd (sd_notify(3))."""

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

#: Number of descriptors for other purposes than clients: files, pipes, databases, connections to the core and
#: the hub.
_RESERVED_DESCRIPTORS = 64

#: Parameters of mallopt(3), from malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_log = logging.getLogger(__name__)


class ThreadPool(Protocol):
    """Pool that runs a function on a thread while other greenlets continue (gevent's ThreadPool)."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any: ...


def run_on_thread(pool: ThreadPool, function: Callable[..., T], *arguments: Any) -> T:
    """Run a blocking function on a thread of the pool, and return its result. Raises the exception of the
    function if the function fails."""
    # gevent prints each exception that leaves a function on a thread.
    outcome: T | Exception = pool.apply(_catch_exception, (function, *arguments))
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _catch_exception(function: Callable[..., T], *arguments: Any) -> T | Exception:
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - raised in the caller's thread
        return error


def wait_for_signal(signals: Collection[signal.Signals], seconds: float) -> bool:
    """Wait for one of these signals, which must be blocked. Return True as soon as a signal arrives, or False
    if no signal arrives within `seconds` seconds."""
    received = signal.sigtimedwait(signals, seconds)
    # If the process was stopped (SIGSTOP) and continues after these seconds, Python 3.11 returns an empty
    # record.
    return received is not None and received.si_signo in signals


def freeze_loaded_objects() -> None:
    """Exempt all existing objects from garbage collection permanently, so that collections and the end of the
    process take less time. An object that must be closed at the end of the process, such as a database, must
    not exist yet."""
    gc.freeze()


def return_large_objects() -> None:
    """Make malloc return the memory of each object of at least 128 KiB to the kernel when the object is freed
    (mallopt(3)). By default, glibc raises this threshold up to 32 MiB: the parts of a long list then leave
    holes between small objects, and the process keeps twice the memory that it needs."""
    libc = ctypes.CDLL(None)
    if not (
        libc.mallopt(_M_MMAP_THRESHOLD, 128 << 10)
        # A lower threshold would return memory and request it again with each response.
        and libc.mallopt(_M_TRIM_THRESHOLD, 1 << 20)
    ):
        _log.warning("cannot set the thresholds of malloc: the process keeps the memory of large responses")


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors to the hard limit (getrlimit(2)). The soft limit is low only
    for programs that use select(2)."""
    _, max_count = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_count, max_count))


def compute_max_clients(max_count: int) -> int:
    """Return the maximum number of clients of one kind, as far as the limit of file descriptors allows
    (getrlimit(2)), but at most `max_count`. There are two kinds: clients of requests and clients of event
    streams."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # One of the open descriptors is for this folder.
    open_count = len(list(Path("/proc/self/fd").iterdir())) - 1
    return max(1, min(max_count, (limit - open_count - _RESERVED_DESCRIPTORS) // 2))


def notify(address: str, state: bytes = b"READY=1") -> None:
    """Send the readiness of the service, or another `state`, to the systemd socket `address`, which is the
    value of NOTIFY_SOCKET. Raises OSError if the socket cannot be reached."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as systemd:
        systemd.sendto(state, f"\0{address[1:]}" if address.startswith("@") else address)


class Watchdog:
    """Watchdog of systemd, to which a loop of this process reports that the loop is running. systemd restarts
    a process that does not report for the `WatchdogSec` of its unit (sd_watchdog_enabled(3))."""

    def __init__(self, address: str, limit: float) -> None:
        self._address = address
        #: Seconds between two reports.
        self.pause = limit / 4
        self._due = 0.0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Watchdog | None":
        """Return the watchdog that the environment variables describe, or None if systemd expects no reports
        from this process."""
        address, limit = environment.get("NOTIFY_SOCKET"), environment.get("WATCHDOG_USEC", "")
        if address is None or not limit.isdecimal():
            return None
        if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        return cls(address, int(limit) / 1e6)

    def beat(self) -> None:
        """Report to systemd that the loop is running, at most once in `pause` seconds. The loop must call
        this method in each round."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self.pause
        try:
            notify(self._address, b"WATCHDOG=1")
        except OSError as error:
            _log.error("cannot report to the watchdog of systemd, which may restart this process: %s", error)


class Readiness:
    """Report to systemd that the service is ready, which is sent when the first worker serves requests. The
    arbiter of gunicorn sends the report, because systemd ignores reports of its children. gunicorn's own
    report would come too early, when the arbiter only listens."""

    def __init__(self) -> None:
        self._serving: int | None = None

    def take_over(self) -> None:
        """Replace the report of gunicorn by the report of this class. Must be called before the first fork,
        and before gunicorn reads `NOTIFY_SOCKET`."""
        address = os.environ.pop("NOTIFY_SOCKET", None)
        if address is not None:
            self._serving = os.eventfd(0)
            threading.Thread(target=self._report, args=(address, self._serving), daemon=True).start()

    def report_serving(self) -> None:
        """Tell the arbiter that a worker serves requests. Only the first call in a worker has an effect."""
        if self._serving is not None:
            os.eventfd_write(self._serving, 1)
            self._serving = None

    def _report(self, address: str, serving: int) -> None:
        os.eventfd_read(serving)
        try:
            notify(address)
        except OSError as error:
            _log.error(
                "cannot report readiness to systemd, which may stop the start of the service: %s", error
            )
