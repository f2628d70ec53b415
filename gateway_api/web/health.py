"""The health of what the gateway depends on: what the core tells, and what the API finds itself."""

import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path

from gateway_api.auth.ledger import Ledger
from gateway_api.base.settings import Settings
from gateway_api.hub.interface import GetCounts, Hub, WebhookCounts
from gateway_api.web.counters import workers_without_room
from gateway_contract.base.certificate import SERVED
from gateway_contract.base.durable import is_unwritable, require_writable
from gateway_contract.base.errors import CoreAbsent, CoreUnavailable, HubUnavailable
from gateway_contract.base.texts import format_utc
from gateway_contract.core.health import Dependency, DependencyState
from gateway_contract.core_client import CoreClient

#: Seconds for the core and for the hub: a response about their health comes within a second while both hang.
_CORE_TIMEOUT, _HUB_TIMEOUT = 0.4, 0.3

_DAY = 86400
#: A certificate of `gateway-api-setup` is renewed 30 days before its end.
_DAYS = 21
_FORMER = (
    "The last reload kept the former TLS certificate: the log says why the new one or its key cannot be used."
)
#: Percent of a file system.
_LITTLE, _NOTHING = 10, 1
_MANY_WAITING = 1000
#: Seconds after which a new login ledger is no news: a token lasts an hour by default.
_NEWS = 3600.0


@dataclass(frozen=True)
class Host:
    """The resources of this machine for the API. `certificate_ends` is the end of the served certificate in
    epoch seconds, None if it cannot be read. `folders` are named by what they hold. `keeps_former` is True if
    the last reload could not use the new certificate or its key. `checks` are further dependencies."""

    certificate_ends: float | None
    folders: Mapping[str, Path]
    clock: Callable[[], float] = time.time
    keeps_former: bool = False
    checks: Sequence[Callable[[], Dependency]] = ()

    @classmethod
    def from_settings(cls, settings: Settings, ledger: Ledger) -> "Host":
        folders = {
            "the login ledger": settings.state,
            "the audit log": settings.audit,
            "the counters": settings.runtime,
        }
        checks = (partial(check_ledger, ledger),)
        return cls(SERVED.end, folders, keeps_former=SERVED.is_former, checks=checks)

    @property
    def certificate_remaining(self) -> float | None:
        """Seconds until the certificate ends, None if that is not known."""
        return None if self.certificate_ends is None else self.certificate_ends - self.clock()

    def dependencies(self) -> list[Dependency]:
        disks = [_disk(holds, folder) for holds, folder in self.folders.items()]
        further = [check() for check in self.checks]
        return [self._certificate(), min(disks, key=itemgetter(0))[1], _counters(), *further]

    def _certificate(self) -> Dependency:
        remaining = self.certificate_remaining
        if remaining is None:
            message = "The end of the TLS certificate cannot be read."
            return Dependency("certificate", DependencyState.UNKNOWN, message)
        if remaining <= 0:
            return Dependency("certificate", DependencyState.FAILED, "The TLS certificate has expired.")
        days = remaining / _DAY
        is_well = days >= _DAYS and not self.keeps_former
        state = DependencyState.OK if is_well else DependencyState.DEGRADED
        message = f"Days until the TLS certificate ends: {int(days)}."
        return Dependency("certificate", state, f"{_FORMER} {message}" if self.keeps_former else message)


def _disk(holds: str, folder: Path) -> tuple[float, Dependency]:
    """Return the free percentage of a file system, of its bytes or its files, whichever is less; and its
    health. A folder that takes no file is worse than a full one."""
    try:
        found = os.statvfs(folder)
        require_writable(folder)
    except OSError as error:
        verb = "written to" if is_unwritable(error) else "read"
        message = f"The disk of {holds} cannot be {verb}: {error.strerror}."
        return -1, Dependency("disk", DependencyState.FAILED, message)
    # Some file systems have no limit of files.
    free = [
        100 * left / total
        for left, total in ((found.f_bavail, found.f_blocks), (found.f_favail, found.f_files))
        if total
    ]
    least = min(free, default=100.0)
    state = DependencyState.OK
    if least < _LITTLE:
        state = DependencyState.DEGRADED if least >= _NOTHING else DependencyState.FAILED
    return least, Dependency("disk", state, f"{int(least)} % of the disk of {holds} is free.")


def _counters() -> Dependency:
    workers = workers_without_room()
    if not workers:
        return Dependency("counters", DependencyState.OK, "The counters of all workers are in the metrics.")
    message = f"The disk takes no counters. Workers that are not in the metrics: {workers}."
    return Dependency("counters", DependencyState.DEGRADED, message)


def check_ledger(ledger: Ledger, clock: Callable[[], float] = time.time) -> Dependency:
    """Return the health of the login ledger. Opens a ledger that was damaged, removed or replaced."""
    try:
        ledger.check()
    except (OSError, sqlite3.Error) as error:
        message = f"The login ledger cannot be read, so no token is accepted: {error}."
        return Dependency("ledger", DependencyState.FAILED, message)
    if not ledger.is_writable:
        message = "The login ledger is read-only, so nobody can log out."
        return Dependency("ledger", DependencyState.DEGRADED, message)
    begun_at = ledger.shared.begun_at
    if begun_at and clock() - begun_at < _NEWS:
        message = (
            "The login ledger was damaged, removed or replaced, and a new one began at"
            f" {format_utc(begun_at)}: all users have to log in again."
        )
        return Dependency("ledger", DependencyState.DEGRADED, message)
    return Dependency("ledger", DependencyState.OK, "The login ledger can be read and written.")


def of_core(core: CoreClient) -> list[Dependency]:
    """Return the core, and what it tells. Takes as long as the core may take."""
    try:
        return core_replied(core.get_dependencies(timeout=_CORE_TIMEOUT))
    except CoreUnavailable as error:
        return [core_failed(error)]


def core_replied(told: tuple[Dependency, ...]) -> list[Dependency]:
    return [Dependency("core", DependencyState.OK, "The core daemon replies."), *told]


def core_failed(error: CoreUnavailable) -> Dependency:
    if isinstance(error, CoreAbsent):
        message = "No core daemon is running, so nothing else is known of what it depends on."
    else:
        message = "The core daemon does not reply, so nothing is known of what it depends on."
    return Dependency("core", DependencyState.FAILED, message)


def of_hub(hub: Hub) -> Dependency:
    try:
        return hub_replied(hub.call(GetCounts(), timeout=_HUB_TIMEOUT))
    except HubUnavailable:
        return hub_failed()


def hub_replied(counts: WebhookCounts) -> Dependency:
    if not counts.webhooks:
        return Dependency("hub", DependencyState.OK, "There are no webhooks.")
    is_well = not counts.paused and counts.waiting <= _MANY_WAITING
    state = DependencyState.OK if is_well else DependencyState.DEGRADED
    paused = f"{counts.paused} of {counts.webhooks} webhooks"
    return Dependency("hub", state, f"Paused after failures: {paused}; messages that wait: {counts.waiting}.")


def hub_failed() -> Dependency:
    return Dependency("hub", DependencyState.FAILED, "The hub, which delivers to webhooks, does not reply.")
