"""Health of the gateway's dependencies, from the core's reports and from checks of the API."""

import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from gateway_api.audit.forward import Progress, get_progress_path, read_progress
from gateway_api.auth.ledger import Ledger
from gateway_api.base.settings import Settings
from gateway_api.hub.interface import GetCounts, Hub, WebhookCounts
from gateway_api.web.counters import count_workers_without_space
from gateway_contract.base.certificate import SERVED
from gateway_contract.base.durable import is_unwritable, require_writable
from gateway_contract.base.errors import CoreAbsent, CoreUnavailable, HubUnavailable
from gateway_contract.base.texts import format_utc
from gateway_contract.core.health import Dependency, DependencyState
from gateway_contract.core_client import CoreClient

#: Timeouts for calls of the core and the hub, in seconds. While neither of them replies, a response about
#: their health still takes less than a second.
_CORE_TIMEOUT_SECONDS, _HUB_TIMEOUT_SECONDS = 0.4, 0.3

_DAY_SECONDS = 86400
#: Remaining days below which the state of the certificate is degraded. `gateway-api-setup` renews its own
#: certificate 30 days before the end.
_MIN_CERTIFICATE_DAYS = 21
_FORMER_CERTIFICATE_MESSAGE = (
    "The last reload kept the former TLS certificate: the log says why the new one or its key cannot be used."
)
#: Free percent of a file system below which its state is degraded, and below which it has failed.
_DEGRADED_PERCENT, _FAILED_PERCENT = 10, 1
_MAX_WAITING_MESSAGES = 1000
#: Age in seconds below which a new login ledger is degraded. A token lasts an hour by default.
_NEW_LEDGER_SECONDS = 3600.0


@dataclass(frozen=True)
class Host:
    """Resources of this machine that the API depends on. `certificate_end` is the time at which the served
    certificate expires, in epoch seconds, or None if the time cannot be read. `is_former_pair` is True if the
    last reload could not use the new certificate or its key, so that the former pair is served. `folders`
    maps a description of a folder's content to the folder. `forwarding` is the file with the progress of
    forwarding the audit log."""

    certificate_end: float | None
    folders: Mapping[str, Path]
    clock: Callable[[], float] = time.time
    is_former_pair: bool = False
    ledger: Ledger | None = None
    forwarding: Path | None = None

    @classmethod
    def from_settings(cls, settings: Settings, ledger: Ledger) -> "Host":
        folders = {
            "the login ledger": settings.state,
            "the audit log": settings.audit,
            "the counters": settings.runtime,
        }
        return cls(
            SERVED.end,
            folders,
            is_former_pair=SERVED.is_former,
            ledger=ledger,
            forwarding=get_progress_path(settings.audit),
        )

    @property
    def certificate_remaining(self) -> float | None:
        """Seconds until the served certificate expires; None if this time is unknown."""
        return None if self.certificate_end is None else self.certificate_end - self.clock()

    @property
    def forwarding_progress(self) -> Progress | None:
        """Progress of forwarding the audit log. None while nothing is forwarded."""
        return None if self.forwarding is None else read_progress(self.forwarding)

    def check(self) -> list[Dependency]:
        """Return the health of the certificate, the fullest disk, the counter files, the login ledger, and
        the receiver of the audit log if there is one."""
        disks = [_check_disk(content, folder) for content, folder in self.folders.items()]
        dependencies = [self._check_certificate(), min(disks, key=itemgetter(0))[1], _check_counters()]
        if self.ledger is not None:
            dependencies.append(check_ledger(self.ledger))
        if (progress := self.forwarding_progress) is not None:
            dependencies.append(_check_forwarding(progress))
        return dependencies

    def _check_certificate(self) -> Dependency:
        remaining = self.certificate_remaining
        if remaining is None:
            message = "The end of the TLS certificate cannot be read."
            return Dependency("certificate", DependencyState.UNKNOWN, message)
        if remaining <= 0:
            return Dependency("certificate", DependencyState.FAILED, "The TLS certificate has expired.")
        days = remaining / _DAY_SECONDS
        message = f"Days until the TLS certificate ends: {int(days)}."
        if self.is_former_pair:
            message = f"{_FORMER_CERTIFICATE_MESSAGE} {message}"
        return _make_dependency(
            "certificate", message, is_ok=days >= _MIN_CERTIFICATE_DAYS and not self.is_former_pair
        )


def _make_dependency(name: str, message: str, *, is_ok: bool) -> Dependency:
    return Dependency(name, DependencyState.OK if is_ok else DependencyState.DEGRADED, message)


def _check_disk(content: str, folder: Path) -> tuple[float, Dependency]:
    """Return the free space of a folder's file system in percent, and the health of the file system. The free
    space is the lower of the percentages of free bytes and of free files, or -1 if the folder cannot be
    written. `content` describes the content of the folder."""
    try:
        disk = os.statvfs(folder)
        require_writable(folder)
    except OSError as error:
        verb = "written to" if is_unwritable(error) else "read"
        message = f"The disk of {content} cannot be {verb}: {error.strerror}."
        return -1, Dependency("disk", DependencyState.FAILED, message)
    # Some file systems have no limit on the number of files: the total is 0.
    capacities = ((disk.f_bavail, disk.f_blocks), (disk.f_favail, disk.f_files))
    percent = min((100 * free / total for free, total in capacities if total), default=100.0)
    message = f"{int(percent)} % of the disk of {content} is free."
    if percent < _FAILED_PERCENT:
        return percent, Dependency("disk", DependencyState.FAILED, message)
    return percent, _make_dependency("disk", message, is_ok=percent >= _DEGRADED_PERCENT)


def _check_counters() -> Dependency:
    workers = count_workers_without_space()
    message = "The counters of all workers are in the metrics."
    if workers:
        message = f"The disk takes no counters. Workers that are not in the metrics: {workers}."
    return _make_dependency("counters", message, is_ok=not workers)


def _check_forwarding(progress: Progress) -> Dependency:
    if progress.failing_since is None:
        message = "The receiver of the audit log has confirmed all that was sent to it."
    else:
        since = format_utc(int(progress.failing_since))
        message = f"The receiver of the audit log has confirmed nothing since {since}: {progress.failure}."
    return _make_dependency("audit_forward", message, is_ok=progress.failing_since is None)


def check_ledger(ledger: Ledger, clock: Callable[[], float] = time.time) -> Dependency:
    """Return the health of the login ledger. If the file of the ledger was damaged, removed or replaced,
    first open the ledger again. `clock` gives epoch seconds."""
    try:
        ledger.check()
    except (OSError, sqlite3.Error) as error:
        message = f"The login ledger cannot be read, so no token is accepted: {error}."
        return Dependency("ledger", DependencyState.FAILED, message)
    if not ledger.is_writable:
        return _make_dependency(
            "ledger", "The login ledger is read-only, so nobody can log out.", is_ok=False
        )
    begun_at = ledger.shared.file.begun_at
    if begun_at and clock() - begun_at < _NEW_LEDGER_SECONDS:
        message = (
            "The login ledger was damaged, removed or replaced, and a new one began at"
            f" {format_utc(begun_at)}: all users have to log in again."
        )
        return _make_dependency("ledger", message, is_ok=False)
    return _make_dependency("ledger", "The login ledger can be read and written.", is_ok=True)


def check_core(core: CoreClient) -> list[Dependency]:
    """Return the health of the core and of the core's dependencies."""
    try:
        return describe_core(core.get_dependencies(timeout=_CORE_TIMEOUT_SECONDS))
    except CoreUnavailable as error:
        return describe_core(error)


def describe_core(result: tuple[Dependency, ...] | CoreUnavailable) -> list[Dependency]:
    """Return the health of the core and of the core's dependencies. `result` is the core's reply, or the
    error of the call."""
    if isinstance(result, tuple):
        return [Dependency("core", DependencyState.OK, "The core daemon replies."), *result]
    if isinstance(result, CoreAbsent):
        message = "No core daemon is running, so nothing else is known of what it depends on."
    else:
        message = "The core daemon does not reply, so nothing is known of what it depends on."
    return [Dependency("core", DependencyState.FAILED, message)]


def check_hub(hub: Hub) -> Dependency:
    try:
        return describe_hub(hub.call(GetCounts(), timeout=_HUB_TIMEOUT_SECONDS))
    except HubUnavailable:
        return describe_hub(None)


def describe_hub(counts: WebhookCounts | None) -> Dependency:
    """Return the health of the hub. `counts` are the hub's counts of webhooks, or None if the hub does not
    reply."""
    if counts is None:
        message = "The hub, which delivers to webhooks, does not reply."
        return Dependency("hub", DependencyState.FAILED, message)
    if not counts.webhooks:
        return Dependency("hub", DependencyState.OK, "There are no webhooks.")
    paused = f"{counts.paused} of {counts.webhooks} webhooks"
    message = f"Paused after failures: {paused}; messages that wait: {counts.waiting}."
    return _make_dependency(
        "hub", message, is_ok=not counts.paused and counts.waiting <= _MAX_WAITING_MESSAGES
    )
