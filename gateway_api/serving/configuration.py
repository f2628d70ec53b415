"""The part of gunicorn's configuration that both profiles share: `users.py` and `token.py` add the rest.

The arbiter imports this before gevent patches a worker, and a worker inherits what is imported: the whole
application, so that a worker begins at once and shares its memory. It must not import what a worker uses for
its own connections.
"""

import logging
import os
import resource
import sys
from contextlib import closing
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

# Before Flask: at the end of a worker, Python takes modules down in reverse order, and the log handler of
# Flask needs the locks of gevent.
import gevent.thread  # noqa: F401
from gunicorn.glogging import Logger

from gateway_api.base import http, logs
from gateway_api.base.errors import CoreUnavailable, GatewayApiError
from gateway_api.base.settings import BadSetting, Profile, Settings, log_format, log_level
from gateway_api.base.variables import value
from gateway_api.core_client.commands import Daemon
from gateway_api.web import app
from gateway_api.wire.varlink.client import Client

_log = logging.getLogger("gunicorn.error")

#: The address at which the alternative profile listens.
_listening: str | None = None


class Off(GatewayApiError):
    """The running configuration disables the profile. The text says how to enable it."""


def common(profile: Profile) -> dict[str, Any]:
    """gunicorn's settings, by name."""
    return {
        "wsgi_app": f"{app.__name__}:{profile.factory}()",
        "proc_name": profile.name,
        "workers": value(os.environ, profile.workers),
        "worker_class": "gateway_api.serving.worker.GatewayWorker",
        "worker_tmp_dir": value(os.environ, profile.runtime),
        "logger_class": "gateway_api.serving.configuration.Log",
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
    """Lets gunicorn import its configuration again at a SIGHUP: Python would return the loaded module."""
    sys.modules.pop(server.cfg.config.removeprefix("python:"), None)


def raise_descriptor_limit() -> None:
    """Raises the soft limit, which exists for select(), to the hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def address(settings: Settings) -> str:
    """Address and port as gunicorn takes them, from the running configuration. Raises Off and
    CoreUnavailable."""
    with closing(Client(settings.core_socket)) as client:
        running = Daemon(client).settings()
    if running.auth_token is None:
        raise Off("the running configuration has no api.auth_token")
    try:
        listen = ip_address(running.listen_address)
    except ValueError as error:
        raise CoreUnavailable(f"the core's api.listen_address is no address: {error}") from error
    if not (listen.is_loopback or settings.beyond_loopback):
        raise Off(
            f"api.listen_address {listen} is not a loopback address, and plain HTTP would show the token to"
            " everybody on the way; GATEWAY_API_TOKEN_BEYOND_LOOPBACK=yes allows it nevertheless"
        )
    return f"[{listen}]:{running.listen_port}" if listen.version == 6 else f"{listen}:{running.listen_port}"


def address_or_last(settings: Settings) -> str:
    """`address`, or the last one if the core is unavailable at a reload. Raises Off, and CoreUnavailable at a
    start."""
    global _listening
    try:
        _listening = address(settings)
    except CoreUnavailable as error:
        if _listening is None:
            raise
        _log.warning("still listening at %s: %s", _listening, error)
    return _listening


class Log(Logger):  # type: ignore[misc]
    """gunicorn's log, in our format."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        try:
            format, level = log_format(os.environ), log_level(os.environ)
        except BadSetting:
            # The start fails later, and the message about it needs a format.
            format, level = "keyvalue", logging.INFO
        # gunicorn would keep the access log at info.
        for logger in (self.error_log, self.access_log):
            logger.setLevel(level)
        logs.install(format, self.error_log, self.access_log)

    def access(self, resp: Any, req: Any, environ: Any, request_time: timedelta) -> None:
        fields = http.log_fields(
            environ,
            request_id=http.request_id_in(resp.headers),
            status=resp.status_code,
            size=resp.sent,
            seconds=request_time.total_seconds(),
        )
        level = http.level_of_request(environ, resp.status_code)
        self.access_log.log(level, "", extra=logs.extra(**fields))
