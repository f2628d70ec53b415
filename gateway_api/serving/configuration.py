"""Part of gunicorn's configuration that both profiles share: `users.py` and `token.py` add the rest.

The arbiter imports this module before gevent patches a worker, and a worker inherits what is imported. Both
profiles also import the whole application, so that a worker begins at once and shares the memory. They must
import nothing that a worker uses for its own connections.
"""

import logging
import os
import socket
import sys
from contextlib import closing
from ipaddress import ip_address
from typing import Any

# Before Flask: at the end of a worker, Python takes modules down in reverse order, and the log handler of
# Flask needs the locks of gevent.
import gevent.thread  # noqa: F401

from gateway_api.base.settings import Profile, Settings
from gateway_contract.base.errors import CoreUnavailable, GatewayApiError
from gateway_contract.base.variables import value
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client

_log = logging.getLogger("gunicorn.error")

#: The address at which the alternative profile listens.
_listening: str | None = None


class Off(GatewayApiError):
    """Profile that the running configuration disables. The text says how to enable the profile."""


class BadAddress(Off):
    """Address of the running configuration at which the profile cannot listen."""


def make_settings(profile: Profile) -> dict[str, Any]:
    """Return gunicorn's settings by name."""
    return {
        "wsgi_app": f"gateway_api.web.app:{profile.factory}()",
        "proc_name": profile.name,
        "workers": value(os.environ, f"{profile.prefix}_WORKERS"),
        "worker_class": "gateway_api.serving.worker.GatewayWorker",
        "worker_tmp_dir": value(os.environ, f"{profile.prefix}_RUNTIME"),
        "logger_class": "gateway_api.serving.worker.Log",
        "accesslog": "-",
        # Seconds for requests in progress at a stop, within systemd's TimeoutStopSec. A reload gives more.
        "graceful_timeout": 8,
        # Also gunicorn's limit for the header of a request: never 0.
        "keepalive": 30,
        # With HTTP/2, a second request would wait behind a long response.
        "http_protocols": "h1",
        # gunicorn 27 opens a socket for its own commands by default.
        "control_socket_disable": True,
        # There is no proxy: X-Forwarded-For of a client is never used.
        "forwarded_allow_ips": "",
        "on_reload": forget_configuration,
    }


def forget_configuration(server: Any) -> None:
    """Let gunicorn import its configuration again at a SIGHUP: Python would return the loaded module."""
    sys.modules.pop(server.cfg.config.removeprefix("python:"), None)


def read_address(settings: Settings) -> str:
    """Return the configured address and port for gunicorn. Raises Off, BadAddress and CoreUnavailable."""
    with closing(Client(settings.core_socket)) as client:
        running = CoreClient(client).get_settings()
    if running.auth_token is None:
        raise Off("the running configuration has no api.auth_token")
    try:
        listen = ip_address(running.listen_address)
    except ValueError as error:
        raise CoreUnavailable(f"the core's api.listen_address is no address: {error}") from error
    if not (listen.is_loopback or settings.beyond_loopback):
        raise BadAddress(
            f"api.listen_address {listen} is not a loopback address, and plain HTTP would show the token to"
            " everybody on the way; GATEWAY_API_TOKEN_BEYOND_LOOPBACK=yes allows it nevertheless"
        )
    return f"[{listen}]:{running.listen_port}" if listen.version == 6 else f"{listen}:{running.listen_port}"


def choose_address(settings: Settings) -> str:
    """Return the address of the running configuration. At a reload, return the former address if the new one
    cannot be used or the core is unavailable. Raises Off; at a start also BadAddress and CoreUnavailable."""
    global _listening
    try:
        found = read_address(settings)
        # At a start, gunicorn tries several times.
        if _listening not in (None, found):
            _require_free(found)
        _listening = found
    except (BadAddress, CoreUnavailable) as error:
        if _listening is None:
            raise
        _log.error("still listening at %s: %s", _listening, error)
    return _listening


def _require_free(place: str) -> None:
    """Raise BadAddress if nobody can listen there: gunicorn would close its sockets first, and then end."""
    host, _, port = place.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), int(port)), family=family).close()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise BadAddress(f"cannot listen at {place}: {reason}; a restart may help") from error
