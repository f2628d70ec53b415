"""Core daemon of one gateway: log, configuration, socket, signals."""

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
from typing import ParamSpec

import click

from gateway_contract.base import logs
from gateway_contract.base.errors import GatewayApiError, StepFailed
from gateway_contract.base.process import (
    Watchdog,
    freeze_loaded_objects,
    notify,
    raise_descriptor_limit,
    wait_for_signal,
)
from gateway_contract.base.variables import read_log_style
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
from gateway_core.service.jobs import Jobs
from gateway_core.sessions.journal import Journal

#: Seconds between two checks of the deadline of a commit, of temporary rates, or of the services.
_CHECK_SECONDS = 0.05
#: Seconds for which a thread keeps the interpreter while others wait. Python's default is ten times as long:
#: a short call would wait for that time for each list that is being made.
_SWITCH_SECONDS = 0.0005
#: Seconds until the next attempt after a failed check.
_RETRY_SECONDS = 5.0

#: The core's call to itself. Its reply needs the locks of other replies, and waits for nothing else.
_HEALTH_METHOD = f"{CORE.name}.{GetHealth.__name__}"

_DEADLINE_FAILED = "cannot return to the former configuration after an unconfirmed commit"
_RATES_FAILED = "cannot restore the former rates of sessions"
_NOTE_FAILED = "cannot forget the last noted change, version 0.1.0 cannot start with this configuration"
_SERVICES_FAILED = "some services do not use the running configuration"

_log = logging.getLogger("gateway_core")

P = ParamSpec("P")


def add_core_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that every core has to a command. The options become arguments of `serve`."""
    path = click.Path(path_type=Path)
    for option in (
        click.option(
            "--boot-id", metavar="BOOT_ID",
            help="boot id of the machine, if /proc/sys cannot be read: systemd's %b",
        ),
        click.option(
            "--users", metavar="USERS", type=path, help="first users, if --factory has none: a JSON document"
        ),
        click.option(
            "--factory", metavar="FACTORY", type=path, help="first configuration: a JSON document"
        ),
        click.option(
            "--configuration", metavar="CONFIGURATION", type=path, required=True,
            help="folder of the configuration",
        ),
        click.option("--socket", metavar="SOCKET", type=path, required=True, help="socket of the core"),
    ):  # fmt: skip
        function = option(function)
    return function


def serve(
    services: GatewayServices,
    open_gateway: Callable[[Configuration, Journal, Clock], Gateway],
    *,
    socket: Path,
    configuration: Path,
    factory: Path | None,
    users: Path | None,
    boot_id: str | None,
) -> int:
    """Serve the gateway that `open_gateway` returns, until SIGTERM or SIGINT. Return the exit status: 1 if
    the core cannot start, for example because `open_gateway` raises GatewayApiError or OSError; 0
    otherwise."""
    _start_log()
    # The watchdog ends the process by SIGABRT: then the log has the stack of each thread.
    faulthandler.enable()
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Before any thread starts: threads inherit the mask, so only the main one gets the signals.
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    raise_descriptor_limit()
    try:
        clock = Clock(boot_id or read_boot_id())
        read_first_configuration = partial(_read_first_configuration, factory, users)
        workspace = Workspace(ConfigurationStore(configuration), read_first_configuration, clock, services)
        # The log comes and goes with the configuration. The key itself must stay secret.
        name = hashlib.blake2b(workspace.snapshot.state.key.encode(), digest_size=8).hexdigest()
        changes = ChangeLog(configuration / "changes", name)
        workspace.follow_notes(changes.add_once)
        journal = Journal(secrets.token_hex(8))
        gateway = open_gateway(workspace.effective_configuration, journal, clock)
        workspace.set_gateway(gateway.preview_impact, gateway.freeze_sessions, gateway.apply_in_kernel)
        # A restart applies the configuration, which is on disk.
        workspace.follow(
            _exit_on_failure(
                gateway.configure, "the gateway cannot apply the new configuration, the core exits"
            )
        )
        # Before the gateway runs: its sessions must not start with a configuration that is to be undone. Only
        # after the gateway exists: it ends the sessions that started with that configuration.
        _try_and_log(workspace.revert_if_due, _DEADLINE_FAILED)
        service = CoreService(gateway, journal, workspace, changes, clock)
        interface = service.make_interface(Jobs(configuration / "jobs", clock))
        server = Server(socket, Dispatcher(IDENTITY, [interface]))
        # Before the server replies. Until then, the time of its socket is no version.
        workspace.follow_versions(partial(_set_time, socket))
    except (GatewayApiError, OSError) as error:
        _log.critical("cannot start the core daemon: %s", error)
        return 1
    session_count = len(gateway.sessions)
    freeze_loaded_objects()
    run_gateway = _exit_on_failure(gateway.run, "the gateway has stopped, the core exits")
    # Each on its own: a service that refuses must not delay the return to the former configuration.
    keep_deadline = partial(_repeat, workspace.revert_if_due, _DEADLINE_FAILED)
    keep_rates = partial(_repeat, service.rates.restore_due_rates, _RATES_FAILED)
    keep_services = partial(_repeat, workspace.apply_running, _SERVICES_FAILED)
    for run in (server.serve_forever, run_gateway, keep_deadline, keep_rates, keep_services):
        threading.Thread(target=run, daemon=True).start()
    _log.info("serving %d sessions at %s", session_count, socket)
    if address := os.environ.get("NOTIFY_SOCKET"):
        notify(address)
    _serve_until_signal(signals, socket)
    server.close()
    if changes.flush():
        _try_and_log(workspace.forget_note, _NOTE_FAILED)
    return 0


def _serve_until_signal(signals: set[signal.Signals], socket: Path) -> None:
    """Wait for one of the signals. Meanwhile, call the core at its own socket, as the API does, and report
    each reply to the watchdog of systemd. If a lock of the core is never released, there is no reply, and
    systemd restarts the core."""
    watchdog = Watchdog.of(os.environ)
    if watchdog is None:
        signal.sigwait(signals)
        return
    client = Client(socket, timeout=watchdog.pause)
    while not wait_for_signal(signals, watchdog.pause):
        try:
            client.call(_HEALTH_METHOD)
        except Unreachable as error:
            _log.error("the core does not reply to its own call, systemd will restart the core: %s", error)
        else:
            watchdog.beat()
        # So that the next call tells whether the core accepts connections.
        client.close()


def _set_time(socket: Path, version: int) -> None:
    with suppress(FileNotFoundError):
        os.utime(socket, ns=(version, version))


def _start_log() -> None:
    # In the format of the API, by the same variables. A bad value must not stop the gateway.
    format, level, setting_error = read_log_style(os.environ)
    logs.install(format)
    logging.getLogger().setLevel(level)
    if setting_error is not None:
        _log.error("%s; the log uses the default format and level", setting_error)


def _repeat(act: Callable[[], object], failure: str) -> None:
    while True:
        began = time.monotonic()
        is_done = _try_and_log(act, failure)
        # At least as long as the failed attempt: it kept commits from the configuration.
        time.sleep(_CHECK_SECONDS if is_done else max(_RETRY_SECONDS, time.monotonic() - began))


def _try_and_log(act: Callable[[], object], failure: str) -> bool:
    """Call the function `act`. Return True if `act` succeeds. Otherwise, log the text `failure` with the
    error, and return False."""
    try:
        act()
    except StepFailed as error:
        _log.critical("%s: %s", failure, error)
        return False
    except Exception:  # noqa: BLE001 - the automatic rollback may be the operator's only way to the machine
        _log.critical(failure, exc_info=True)
        return False
    return True


def _exit_on_failure(run: Callable[P, None], failure: str) -> Callable[P, None]:
    """Return a function that calls `run`, and ends the process if `run` fails. A gateway that has stopped
    working but still replies is worse than no gateway."""

    def guarded(*arguments: P.args, **keywords: P.kwargs) -> None:
        try:
            run(*arguments, **keywords)
        except BaseException:  # noqa: BLE001 - it ends the process
            _log.exception(failure)
            os._exit(1)

    return guarded


def _read_first_configuration(path: Path | None, users: Path | None) -> RunningConfiguration:
    if path is None:
        raise Unreadable("there is no configuration yet, and no --factory to begin with")
    return RunningConfiguration.read_first(path, users)
