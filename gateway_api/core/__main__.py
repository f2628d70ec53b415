"""`python -m gateway_api.core`: the embedded core daemon, until SIGTERM or SIGINT.

SIGHUP reads the running configuration again.
"""

import argparse
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.gateways.lab.gateway import LabGateway
from gateway_api.core.gateways.lab.population import Population
from gateway_api.core.gateways.lab.world import MAX_SESSIONS
from gateway_api.core.service import IDENTITY, CoreService
from gateway_api.errors import GatewayApiError
from gateway_api.varlink.dispatcher import Dispatcher
from gateway_api.varlink.server import Server

#: How long the lab lets due arrivals and departures wait, in seconds.
_TICK = 0.05

_log = logging.getLogger("gateway_api.core")


def main() -> int:
    arguments = _arguments()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s core: %(message)s")
    # Before any thread starts: threads inherit the mask, so only the main one gets the signals.
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    # A descriptor for each connection: the usual soft limit is for select(), which nobody here uses.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        running = RunningConfiguration.read(arguments.configuration)
        population = Population(arguments.sessions, arguments.arrivals, arguments.seed)
        gateway = LabGateway(running.sections, population, _steady_clock())
        service = CoreService(gateway, running, arguments.configuration)
        server = Server(arguments.socket, Dispatcher(IDENTITY, [service.interface()]))
    except (GatewayApiError, OSError) as error:
        sys.stderr.write(f"cannot start the core daemon: {error}\n")
        return 1
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=_tick, args=(gateway,), daemon=True).start()
    _log.info("serving %d sessions at %s", arguments.sessions, arguments.socket)
    while signal.sigwait(signals) == signal.SIGHUP:
        try:
            service.reload()
            _log.info("running configuration read again")
        except GatewayApiError as error:
            _log.error("kept the running configuration: %s", error)
    server.close()
    return 0


def _steady_clock() -> Callable[[], float]:
    """Epoch seconds that never go back: a stepped clock must not turn the counters back."""
    start = time.time() - time.monotonic()
    return lambda: start + time.monotonic()


def _tick(gateway: LabGateway) -> None:
    try:
        while True:
            gateway.advance()
            time.sleep(_TICK)
    except BaseException:  # noqa: BLE001 - it ends the process
        # A gateway that stands still and answers as if nothing were wrong is worse than none.
        _log.exception("the lab stopped")
        os._exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gateway_api.core", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="where to listen")
    parser.add_argument("--configuration", type=Path, required=True, help="the running configuration")
    parser.add_argument("--sessions", type=_sessions, default=200, help=f"at the start, 0 to {MAX_SESSIONS}")
    parser.add_argument("--arrivals", type=_arrivals, default=0.0, help="a second, at the mean")
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same subscribers")
    return parser.parse_args()


def _sessions(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MAX_SESSIONS:
        raise argparse.ArgumentTypeError(f"must be 0 to {MAX_SESSIONS}")
    return number


def _arrivals(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 20_000:
        raise argparse.ArgumentTypeError("must be 0 to 20000")
    return number


if __name__ == "__main__":
    sys.exit(main())
