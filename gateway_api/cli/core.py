"""`python -m gateway_api.cli.core`: the embedded core daemon, until SIGTERM or SIGINT.

It serves the lab, a gateway with simulated subscribers. Nothing else in the core knows the lab.
"""

import argparse
import hashlib
import logging
import os
import resource
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from gateway_api.base import logs
from gateway_api.base.errors import GatewayApiError
from gateway_api.base.process import notify
from gateway_api.base.settings import BadSetting, log_format, log_level
from gateway_api.core.changes import ChangeLog
from gateway_api.core.clock import Clock, boot_id
from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.configuration.services import check
from gateway_api.core.configuration.store import Store, Unreadable
from gateway_api.core.configuration.workspace import Workspace
from gateway_api.core.gateways.lab.gateway import LabGateway
from gateway_api.core.gateways.lab.population import Population
from gateway_api.core.gateways.lab.world import MAX_SESSIONS
from gateway_api.core.journal import Journal
from gateway_api.core.service import IDENTITY, CoreService
from gateway_api.version import VERSION
from gateway_api.wire.varlink.dispatcher import Dispatcher
from gateway_api.wire.varlink.server import Server

#: Seconds between two advances of the lab, and between two checks of the deadline of a commit.
_TICK = 0.05
#: Seconds until a failed return to the former configuration is tried again.
_RETRY = 5.0

_log = logging.getLogger("gateway_api.core")

P = ParamSpec("P")
T = TypeVar("T", int, float)


def main() -> int:
    arguments = _arguments()
    _begin_log()
    # Before any thread starts: threads inherit the mask, so only the main one gets the signals.
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    # One descriptor per connection. The default soft limit is for select(), which is not used here.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        clock = Clock(arguments.boot_id or boot_id())
        factory = partial(_factory, arguments.factory, arguments.users)
        workspace = Workspace(Store(arguments.configuration), factory, clock, check)
        # The log comes and goes with the configuration. The key itself must stay secret.
        name = hashlib.blake2b(workspace.view.state.key.encode(), digest_size=8).hexdigest()
        changes = ChangeLog(arguments.configuration / "changes", name)
        workspace.note(changes.settle)
        # Before the gateway exists: its sessions must not start with a configuration that is to be undone.
        _return_if_due(workspace)
        population = Population(arguments.sessions, arguments.arrivals, arguments.seed)
        journal = Journal(secrets.token_hex(8))
        gateway = LabGateway(workspace.view.running.sections, population, journal, clock)
        # A restart applies the configuration, which is on disk.
        workspace.follow(_or_end(gateway.configure, "the gateway can't follow the configuration"))
        service = CoreService(gateway, journal, workspace, changes, clock)
        server = Server(arguments.socket, Dispatcher(IDENTITY, [service.interface()]))
    except (GatewayApiError, OSError) as error:
        _log.critical("cannot start the core daemon: %s", error)
        return 1
    advance = _or_end(partial(_advance, gateway), "the lab stopped")
    for run in (server.serve_forever, advance, partial(_watch_deadline, workspace)):
        threading.Thread(target=run, daemon=True).start()
    _log.info("serving %d sessions at %s", arguments.sessions, arguments.socket)
    if address := os.environ.get("NOTIFY_SOCKET"):
        notify(address)
    signal.sigwait(signals)
    server.close()
    return 0


def _begin_log() -> None:
    """In the format of the API, by the same variables. A bad value must not stop the gateway."""
    wrong = None
    try:
        format, level = log_format(os.environ), log_level(os.environ)
    except BadSetting as error:
        format, level, wrong = "keyvalue", logging.INFO, error
    logs.install(format)
    logging.getLogger().setLevel(level)
    if wrong is not None:
        _log.error("%s; the log has its default format and level", wrong)


def _advance(gateway: LabGateway) -> None:
    while True:
        gateway.advance()
        time.sleep(_TICK)


def _watch_deadline(workspace: Workspace) -> None:
    while True:
        time.sleep(_TICK if _return_if_due(workspace) else _RETRY)


def _return_if_due(workspace: Workspace) -> bool:
    """False after a failure: the former configuration cannot run now, or the deadline cannot be stored."""
    try:
        workspace.return_if_due()
    except Exception:  # noqa: BLE001 - logged, and tried again
        # The automatic rollback may be the operator's only way back to the machine.
        _log.critical("cannot keep the deadline of an unconfirmed commit", exc_info=True)
        return False
    return True


def _or_end(run: Callable[P, None], failure: str) -> Callable[P, None]:
    """Ends the process when it fails: a gateway that stands still and still replies is worse than none."""

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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gateway_api.cli.core", description=__doc__)
    parser.add_argument("--version", action="version", version=f"gateway-core {VERSION}")
    parser.add_argument("--socket", type=Path, required=True, help="where to listen")
    parser.add_argument("--configuration", type=Path, required=True, help="the folder of the configuration")
    parser.add_argument("--factory", type=Path, help="the configuration to begin with, a JSON document")
    parser.add_argument("--users", type=Path, help="users to begin with if --factory has none, in JSON")
    parser.add_argument("--boot-id", help="of the machine, where /proc/sys cannot be read: systemd's %%b")
    parser.add_argument(
        "--sessions", type=_number(int, MAX_SESSIONS), default=200, help=f"at the start, 0 to {MAX_SESSIONS}"
    )
    parser.add_argument(
        "--arrivals", type=_number(float, 20_000), default=0.0, help="per second, at the mean"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same subscribers")
    return parser.parse_args()


def _number(parse: Callable[[str], T], most: int) -> Callable[[str], T]:
    def number(text: str) -> T:
        value = parse(text)
        if not 0 <= value <= most:
            raise argparse.ArgumentTypeError(f"must be 0 to {most}")
        return value

    return number


if __name__ == "__main__":
    sys.exit(main())
