"""The daemon around one gateway: log, configuration, socket, signals."""

import faulthandler
import hashlib
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn, ParamSpec

import click

from gateway_contract.base import logs
from gateway_contract.base.errors import GatewayApiError, StepFailed
from gateway_contract.base.process import Watchdog, has_signal, keep_loaded, notify, raise_descriptor_limit
from gateway_contract.base.variables import log_style
from gateway_contract.configuration import Configuration
from gateway_contract.core.interface import CORE
from gateway_contract.core.sessions import GetHealth
from gateway_contract.varlink.client import Client, Unreachable
from gateway_contract.varlink.dispatcher import Dispatcher
from gateway_contract.varlink.server import Server
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.configuration.store import ConfigurationStore, Unreadable
from gateway_core.configuration.workspace import GatewayServices, Workspace
from gateway_core.gateways.protocols import Gateway
from gateway_core.records.changes import ChangeLog
from gateway_core.records.clock import Clock, read_boot_id
from gateway_core.service.core import IDENTITY, CoreService
from gateway_core.service.jobs import Jobs, JobService
from gateway_core.service.outcomes import Outcomes
from gateway_core.service.traffic import TrafficService
from gateway_core.sessions.journal import Journal

#: Seconds between two checks of the deadline of a commit, of temporary rates, or of the services.
_TICK = 0.05
#: Seconds for which a thread keeps the interpreter while others wait. By Python's own value, ten times as
#: long, a short call waits for such a turn of each list that is being made.
_SWITCH = 0.0005
#: Seconds until a failed return to the former configuration, or a service that refused, is tried again.
_RETRY = 5.0

#: The core's call to itself. Its reply needs the locks of other replies, and waits for nothing else.
_HEALTH = f"{CORE.name}.{GetHealth.__name__}"

_NOT_RETURNED = "cannot keep the deadline of an unconfirmed commit"
_NOT_FORMER = "cannot return former rates"
_NOT_APPLIED = "the services do not run by the running configuration"

_log = logging.getLogger("gateway_core")

P = ParamSpec("P")


class Opened(NamedTuple):
    """A gateway, and what it does in a thread of its own until the process ends."""

    gateway: Gateway
    run: Callable[[], NoReturn]


def core_options(function: Callable[..., int]) -> Callable[..., int]:
    """Return the options of every core, as `serve` takes them, for a command that adds those of its
    gateway."""
    path = click.Path(path_type=Path)
    for option in (
        click.option(
            "--boot-id", metavar="BOOT_ID",
            help="of the machine, where /proc/sys cannot be read: systemd's %b",
        ),
        click.option(
            "--users", metavar="USERS", type=path, help="users to begin with if --factory has none, in JSON"
        ),
        click.option(
            "--factory", metavar="FACTORY", type=path, help="the configuration to begin with, a JSON document"
        ),
        click.option(
            "--configuration", metavar="CONFIGURATION", type=path, required=True,
            help="the folder of the configuration",
        ),
        click.option("--socket", metavar="SOCKET", type=path, required=True, help="where to listen"),
    ):  # fmt: skip
        function = option(function)
    return function


def serve(
    services: GatewayServices,
    open_gateway: Callable[[Configuration, Journal, Clock], Opened],
    *,
    socket: Path,
    configuration: Path,
    factory: Path | None,
    users: Path | None,
    boot_id: str | None,
) -> int:
    """Serve the gateway that `open_gateway` makes, until SIGTERM or SIGINT: 0. It may raise GatewayApiError
    and OSError, which end the start: 1."""
    _begin_log()
    # The watchdog ends the process by SIGABRT: what each thread did is in the log then.
    faulthandler.enable()
    sys.setswitchinterval(_SWITCH)
    # Before any thread starts: threads inherit the mask, so only the main one gets the signals.
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    raise_descriptor_limit()
    try:
        clock = Clock(boot_id or read_boot_id())
        first = partial(_factory, factory, users)
        workspace = Workspace(ConfigurationStore(configuration), first, clock, services)
        # The log comes and goes with the configuration. The key itself must stay secret.
        name = hashlib.blake2b(workspace.snapshot.state.key.encode(), digest_size=8).hexdigest()
        changes = ChangeLog(configuration / "changes", name)
        workspace.note(changes.settle)
        journal = Journal(secrets.token_hex(8))
        gateway, run_gateway = open_gateway(workspace.in_force, journal, clock)
        workspace.set_gateway(gateway.impact, gateway.ending, gateway.applying)
        # A restart applies the configuration, which is on disk.
        workspace.follow(_or_end(gateway.configure, "the gateway can't follow the configuration"))
        # Before the gateway runs: its sessions must not start with a configuration that is to be undone. Not
        # before it exists: it ends those that began with that one.
        _done(workspace.return_if_due, _NOT_RETURNED)
        service = CoreService(gateway, journal, workspace, changes, clock)
        jobs = Jobs(configuration / "jobs", clock)
        of_jobs = JobService(gateway, journal, service.rates, jobs, changes, clock)
        outcomes = Outcomes(changes)
        interface = outcomes.record(service.interface(of_jobs, TrafficService(gateway, clock), outcomes))
        server = Server(socket, Dispatcher(IDENTITY, [interface]))
        # Before it serves. Until then, its socket has a time that is no version.
        workspace.announce(partial(_date, socket))
    except (GatewayApiError, OSError) as error:
        _log.critical("cannot start the core daemon: %s", error)
        return 1
    found = len(gateway.sessions)
    keep_loaded()
    never_stops = _or_end(run_gateway, "the gateway stopped")
    # Each on its own: a service that refuses must not delay the return to the former configuration.
    keep_deadline = partial(_keep, workspace.return_if_due, _NOT_RETURNED)
    keep_rates = partial(_keep, service.rates.return_due, _NOT_FORMER)
    keep_services = partial(_keep, workspace.apply_running, _NOT_APPLIED)
    for run in (server.serve_forever, never_stops, keep_deadline, keep_rates, keep_services):
        threading.Thread(target=run, daemon=True).start()
    _log.info("serving %d sessions at %s", found, socket)
    if address := os.environ.get("NOTIFY_SOCKET"):
        notify(address)
    _wait_for(signals, socket)
    server.close()
    return 0


def _wait_for(signals: set[signal.Signals], socket: Path) -> None:
    """Until one of the signals. Meanwhile, the watchdog of systemd hears of each reply of the core to itself,
    as the API would get it: a core with a lock that nobody gives back does not reply."""
    watchdog = Watchdog.of(os.environ)
    if watchdog is None:
        signal.sigwait(signals)
        return
    client = Client(socket, timeout=watchdog.pause)
    while not has_signal(signals, watchdog.pause):
        try:
            client.call(_HEALTH)
        except Unreachable as error:
            _log.error("the core does not reply to itself, and systemd will restart it: %s", error)
        else:
            watchdog.beat()
        # So that the next call tells whether the core accepts connections.
        client.close()


def _date(socket: Path, version: int) -> None:
    """Raises OSError."""
    with suppress(FileNotFoundError):
        os.utime(socket, ns=(version, version))


def _begin_log() -> None:
    """In the format of the API, by the same variables. A bad value must not stop the gateway."""
    format, level, wrong = log_style(os.environ)
    logs.install(format)
    logging.getLogger().setLevel(level)
    if wrong is not None:
        _log.error("%s; the log has its default format and level", wrong)


def _keep(act: Callable[[], object], failure: str) -> None:
    while True:
        began = time.monotonic()
        is_done = _done(act, failure)
        # As long as a failure lasted, too: it kept commits from the configuration.
        time.sleep(_TICK if is_done else max(_RETRY, time.monotonic() - began))


def _done(act: Callable[[], object], failure: str) -> bool:
    """Return False after a failure, which is logged."""
    try:
        act()
    except StepFailed as error:
        _log.critical("%s: %s", failure, error)
        return False
    except Exception:  # noqa: BLE001 - logged, and tried again
        # The automatic rollback may be the operator's only way back to the machine.
        _log.critical(failure, exc_info=True)
        return False
    return True


def _or_end(run: Callable[P, None], failure: str) -> Callable[P, None]:
    """End the process when it fails: a gateway that stands still and still replies is worse than none."""

    def guarded(*arguments: P.args, **more: P.kwargs) -> None:
        try:
            run(*arguments, **more)
        except BaseException:  # noqa: BLE001 - it ends the process
            _log.exception(failure)
            os._exit(1)

    return guarded


def _factory(path: Path | None, users: Path | None) -> RunningConfiguration:
    if path is None:
        raise Unreadable("there is no configuration yet, and no --factory to begin with")
    return RunningConfiguration.read(path, users)
