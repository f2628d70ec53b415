"""The daemons of a commit that run by rendered files: pppd, accel-ppp, FRR."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.store import StepFailed
from gateway_api.core.gateways.linux.daemons.daemon import (
    DaemonAction,
    PlacedFiles,
    PutBack,
    Rendered,
    all_or_none,
    undo,
)
from gateway_api.core.gateways.linux.daemons.frr import FrrFolders, RoutingAbsent, RoutingUnavailable
from gateway_api.core.gateways.linux.daemons.frr_reload import (
    FrrConfiguration,
    RoutingForeign,
    RoutingHalfChanged,
    RoutingRefused,
)
from gateway_api.core.gateways.linux.daemons.time_limit import CommitLimits, TimeLimit
from gateway_api.core.gateways.linux.sources.accel_cli import CommandLine
from gateway_api.core.gateways.linux.sources.source import SourceNotRunning, SourceUnavailable
from gateway_api.wire.core.impact import ServiceAction

_ACCEL_PPP, _FRR = "accel-ppp.conf", "frr.conf"
_RELOAD_ACCEL_PPP, _RELOAD_FRR = "reload accel-ppp", "apply frr.conf to FRR"

_log = logging.getLogger(__name__)


class SignOnFiles:
    """What pppd and accel-ppp read at each sign-on: the subscribers' secrets, or where RADIUS is. Nothing
    reloads."""

    name = "pppd"
    _NAMES = ("chap-secrets", "radiusclient.conf", "radius-servers")

    def __init__(self, files: PlacedFiles) -> None:
        self._files = files

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """As ServiceDaemon."""
        return all_or_none(partial(self._files.place, name, rendered.get(name)) for name in self._NAMES)

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        """As ServiceDaemon."""
        return None


class AccelPppReload:
    """accel-ppp 1.14, which keeps its sessions. A change between RADIUS and local subscribers takes effect at
    its next start: it loads its modules only then. Until then it refuses new sessions."""

    name = "accel-ppp"

    def __init__(self, files: PlacedFiles, command_line: CommandLine) -> None:
        self._files = files
        self._command_line = command_line
        #: What it runs by, if this process has seen to it.
        self._applied: str | None = None

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """As ServiceDaemon. If it does not run, it reads the file at its next start."""
        text = rendered[_ACCEL_PPP]
        if text == self._applied:
            return lambda: None
        place_back = self._files.place(_ACCEL_PPP, text)

        def put_back() -> None:
            self._applied = None
            place_back()
            self._reload(limits.put_back)

        try:
            self._reload(limits.apply)
        except StepFailed:
            # Also if it did not reply: it may have read the file, or do so later.
            undo([put_back])
            raise
        self._applied = text
        return put_back

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        """As ServiceDaemon."""
        return ServiceAction.RELOAD if rendered[_ACCEL_PPP] != self._files.read(_ACCEL_PPP) else None

    def _reload(self, limit: TimeLimit) -> None:
        try:
            reply = self._command_line.run("reload", limit.left())
        except SourceNotRunning as error:
            _log.warning("accel-ppp reads its configuration at its next start: %s", error)
            return
        except SourceUnavailable as error:
            raise StepFailed(_RELOAD_ACCEL_PPP, str(error)) from error
        if reply:
            raise StepFailed(_RELOAD_ACCEL_PPP, repr(reply.decode("ascii", "replace").strip()))


class FrrByDifference:
    """FRR, which gets only what differs. Without BGP in the configuration, the gateway does without FRR, and
    leaves an FRR alone whose configuration is not the gateway's."""

    name = "frr"

    def __init__(self, files: PlacedFiles, folders: FrrFolders) -> None:
        self._files = files
        self._folders = folders
        self._applied: str | None = None
        #: The lines of a configuration that is not the gateway's, which keep FRR from running by this one.
        self.foreign: Sequence[str] = ()

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """As ServiceDaemon."""
        text = rendered[_FRR]
        if text == self._applied:
            return lambda: None
        before = self._files.read(_FRR)
        try:
            self._run_by(text, limits, before)
        except StepFailed as error:
            is_needed = configuration.bgp is not None
            if is_needed or not isinstance(error.__cause__, RoutingAbsent | RoutingForeign):
                raise
            _log.warning("the gateway runs without FRR: %s", error)
            # What `action` compares the next configuration with.
            return self._files.place(_FRR, text)
        back = replace(limits, apply=limits.put_back)
        return lambda: None if before is None else self._run_by(before, back, text)

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        """As ServiceDaemon."""
        return ServiceAction.RELOAD if rendered[_FRR] != self._files.read(_FRR) else None

    def _run_by(self, text: str, limits: CommitLimits, before: str | None) -> None:
        self._applied, self.foreign = None, ()
        # First: a full disk must not be found when FRR has changed.
        place_back = self._files.place(_FRR, text)
        try:
            frr = FrrConfiguration(self._folders, limits)
            frr.refuse_foreign(text, before)
            frr.apply(text)
        except RoutingForeign as error:
            self.foreign = error.lines
            undo([place_back])
            raise StepFailed(_RELOAD_FRR, str(error)) from error
        except RoutingUnavailable as error:
            undo([place_back])
            raise StepFailed(_RELOAD_FRR, error.reason.rstrip(".")) from error
        except (RoutingRefused, RoutingHalfChanged) as error:
            undo([place_back])
            raise StepFailed(_RELOAD_FRR, str(error)) from error
        self._applied = text
