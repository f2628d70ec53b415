"""Part of gunicorn's configuration that both profiles share: `users.py` and `token.py` add the rest.

The arbiter imports this module before gevent patches a worker, and a worker inherits the imported modules.
The modules of both profiles also import the whole application, so that each worker starts at once and shares
the memory of the application. No imported module may create an object that a worker uses for connections.
"""

import logging
import os
import socket
import sys
from contextlib import closing
from ipaddress import ip_address
from typing import Any

# Imported before Flask: at the end of a worker, Python removes modules in reverse order, and Flask's log
# handler needs the locks of gevent.
import gevent.thread  # noqa: F401

from gateway_api.base.settings import Profile, Settings
from gateway_contract.base.errors import CoreUnavailable, GatewayApiError
from gateway_contract.base.variables import value
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client

_log = logging.getLogger("gunicorn.error")

#: Address and port at which the alternative profile listens; None before the first start.
_current_address: str | None = None


class ProfileOff(GatewayApiError):
    """Error of a start: the running configuration disables the profile. The text says how to enable the
    profile."""


class BadListenAddress(ProfileOff):
    """Error of a start: the profile cannot listen at the address of the running configuration."""


def make_settings(profile: Profile) -> dict[str, Any]:
    """Return a map from name to value, with gunicorn's settings for a profile."""
    return {
        "wsgi_app": f"gateway_api.web.app:{profile.factory}()",
        "proc_name": profile.name,
        "workers": value(os.environ, f"{profile.prefix}_WORKERS"),
        "worker_class": "gateway_api.serving.worker.GatewayWorker",
        "worker_tmp_dir": value(os.environ, f"{profile.prefix}_RUNTIME"),
        "logger_class": "gateway_api.serving.worker.Log",
        "accesslog": "-",
        # Seconds for requests in progress at a stop, less than systemd's TimeoutStopSec. A reload gives more
        # time.
        "graceful_timeout": 8,
        # gunicorn also limits the header of a request by this time, so it must not be 0.
        "keepalive": 30,
        # With HTTP/2, a second request would wait behind a long response.
        "http_protocols": "h1",
        # gunicorn 27 opens a socket for its own commands by default.
        "control_socket_disable": True,
        # There is no proxy: X-Forwarded-For of a client is never used.
        "forwarded_allow_ips": "",
        "on_reload": unload_configuration,
    }


def unload_configuration(server: Any) -> None:
    """Make gunicorn import its configuration module again at a SIGHUP. Python would otherwise return the
    module that is already loaded."""
    sys.modules.pop(server.cfg.config.removeprefix("python:"), None)


def read_address(settings: Settings) -> str:
    """Return the address and port of the running configuration, in gunicorn's format. Raises ProfileOff if
    the configuration disables the profile TOKEN, BadListenAddress if the address is not a loopback address
    and the settings allow no other address, and CoreUnavailable if the core does not reply."""
    with closing(Client(settings.core_socket)) as client:
        running = CoreClient(client).get_settings()
    if running.auth_token is None:
        raise ProfileOff("the running configuration has no api.auth_token")
    try:
        listen = ip_address(running.listen_address)
    except ValueError as error:
        raise CoreUnavailable(f"the core's api.listen_address is no address: {error}") from error
    if not (listen.is_loopback or settings.beyond_loopback):
        raise BadListenAddress(
            f"api.listen_address {listen} is not a loopback address, and plain HTTP would show the token to"
            " everybody on the way; GATEWAY_API_TOKEN_BEYOND_LOOPBACK=yes allows it nevertheless"
        )
    return f"[{listen}]:{running.listen_port}" if listen.version == 6 else f"{listen}:{running.listen_port}"


def choose_address(settings: Settings) -> str:
    """Return the address at which to listen, from the running configuration. At a reload, return the current
    address if the new address cannot be used or the core does not reply. Raises ProfileOff if the
    configuration disables the profile TOKEN. At a start, also raises BadListenAddress if the address cannot
    be used, and CoreUnavailable if the core does not reply."""
    global _current_address
    try:
        address = read_address(settings)
        # At a start there is no check, because gunicorn tries several times.
        if _current_address not in (None, address):
            _require_free_address(address)
        _current_address = address
    except (BadListenAddress, CoreUnavailable) as error:
        if _current_address is None:
            raise
        _log.error("cannot change the listen address, still listening at %s: %s", _current_address, error)
    return _current_address


def _require_free_address(address: str) -> None:
    """Raise BadListenAddress if the process cannot listen at an address. Without this check, gunicorn would
    first close its current sockets and then end."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), int(port)), family=family).close()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise BadListenAddress(f"cannot listen at {address}: {reason}; a restart may help") from error
