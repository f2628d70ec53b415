"""Configuration of gunicorn for the API for users, `python:gateway_api.serving.users`.

An operator changes the configuration by environment variables only.
"""

import logging
import os
import secrets
import sqlite3
import ssl
import sys
import warnings
import weakref
from functools import partial
from pathlib import Path
from typing import Any

from gevent.monkey import MonkeyPatchWarning

from gateway_api.audit import forward
from gateway_api.audit.log import prepare_folder
from gateway_api.auth.ledger import prepare_ledger
from gateway_api.base.settings import USERS, Settings, has_secret
from gateway_api.history import sessions as history
from gateway_api.hub import service as hub
from gateway_api.hub.sender import open_tls
from gateway_api.serving.configuration import make_settings, unload_configuration
from gateway_api.serving.worker import (
    find_used_pids,
    has_all_workers,
    is_expiry_logged,
    list_listener_descriptors,
    prepare_arbiter,
    readiness,
)
from gateway_api.web import counters
from gateway_contract.base.certificate import SERVED
from gateway_contract.base.errors import CoreAbsent, GatewayApiError
from gateway_contract.base.process import freeze_loaded_objects
from gateway_contract.base.variables import BadSetting, value

_log = logging.getLogger("gunicorn.error")

globals().update(make_settings(USERS))

bind = value(os.environ, "GATEWAY_API_BIND")
certfile = value(os.environ, "GATEWAY_API_CERTIFICATE")
keyfile = value(os.environ, "GATEWAY_API_KEY")


def on_starting(server: Any) -> None:
    unload_configuration(server)
    prepare_arbiter(server)
    try:
        _prepare_shared_resources()
        _load_certificate(server.cfg)
    except GatewayApiError as error:
        server.log.critical("cannot start the gateway API: %s", error)
        sys.exit(1)


def on_reload(server: Any) -> None:
    unload_configuration(server)
    try:
        _load_certificate(server.cfg)
    except BadSetting as error:
        server.log.error("the reload keeps the former TLS certificate: %s", error)


def when_ready(server: Any) -> None:
    freeze_loaded_objects()
    # gunicorn calls this function at a start, not at a reload: the hub must not start twice.
    try:
        settings, destination = Settings.from_environment(os.environ), forward.Destination()
        hub.start(settings, partial(_has_all_workers, weakref.ref(server)), destination.set)
        forward.start(settings, destination, partial(open_tls, load_pair=SERVED.load_into))
        # After the hub, which fails to start if another service uses the folder.
        counters.delete_former_files()
    except (GatewayApiError, OSError) as error:
        server.log.critical("cannot start the gateway API: %s", error)
        sys.exit(1)


def _has_all_workers(server: weakref.ref[Any]) -> bool:
    # A thread of the hub calls this function. After a fork, the objects of such a thread stay in memory
    # forever: with the arbiter, a worker would keep its application, and would never close the login ledger.
    arbiter = server()
    return arbiter is None or has_all_workers(arbiter)


def pre_fork(server: Any, worker: Any) -> None:
    worker.predecessor = counters.find_ended_worker(find_used_pids(server))
    worker.logs_expiry = not is_expiry_logged(server)


def post_fork(server: Any, worker: Any) -> None:
    # The hub in the arbiter imports the library requests before gevent patches it. No worker uses requests.
    warnings.simplefilter("ignore", MonkeyPatchWarning)
    hub.give_up_sockets(list_listener_descriptors(server))
    # Before the application makes a metric.
    counters.prepare_worker(worker.predecessor)


def child_exit(server: Any, worker: Any) -> None:
    # Not at the top: see `_prepare_shared_resources`.
    from prometheus_client import multiprocess

    try:
        multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
    except OSError as error:
        server.log.error(
            "cannot remove the event streams of an ended worker, the metrics still count them: %s", error
        )
    counters.forget_worker(worker.pid)


def ssl_context(config: Any, default_ssl_context_factory: Any) -> ssl.SSLContext:
    """Return a TLS context that allows TLS 1.3, and TLS 1.2 only with AEAD suites."""
    # gunicorn's factory would read the files again, which may have changed since the check.
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    SERVED.load_into(context)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    return context


def _load_certificate(config: Any) -> None:
    """Load the certificate and its key for the workers that are forked from now on. Raises BadSetting if the
    certificate or the key cannot be used."""
    if not config.certfile:
        return
    try:
        SERVED.load(Path(config.certfile), Path(config.keyfile))
    except (OSError, ValueError) as error:
        names = "GATEWAY_API_CERTIFICATE and GATEWAY_API_KEY"
        raise BadSetting(f"{names}, {config.certfile} and {config.keyfile}: {error}") from error


def _prepare_shared_resources() -> None:
    """Prepare everything that the workers share: the secret, the folders and databases, and the OpenAPI
    document. Must be called before the first fork. Raises BadSetting if a setting is invalid, or if a folder
    or database cannot be created."""
    readiness.take_over()
    if not has_secret(os.environ):
        os.environ["SVC_API_SECRET"] = secrets.token_hex(32)
        _log.warning("SVC_API_SECRET is not set: all users have to log in again after a restart")
    settings = Settings.from_environment(os.environ)
    if settings.has_short_secret:
        _log.warning(
            "SVC_API_SECRET is shorter than the 32 bytes of RFC 7518 section 3.2: set a longer secret"
        )
    if not os.access(settings.core_socket, os.F_OK):
        _log.error("cannot find the socket of the core daemon, %s. %s", settings.core_socket, CoreAbsent.HINT)
    ledger = f"cannot open or create the login ledger {settings.ledger} (GATEWAY_API_STATE)"
    for prepare, path, failure in (
        (prepare_ledger, settings.ledger, ledger),
        (counters.prepare, settings.metrics, f"GATEWAY_API_RUNTIME cannot have {settings.metrics}"),
        (prepare_folder, settings.audit, "GATEWAY_API_AUDIT cannot be the folder of the audit log"),
    ):
        try:
            prepare(path)
        except (OSError, sqlite3.Error) as error:
            raise BadSetting(f"{failure}: {error}") from error
    history.prepare(settings.history)
    # The workers inherit the document. Not at the top: prometheus_client looks for the folder of the counters
    # when it is imported.
    from gateway_api.web.app import make_openapi

    make_openapi()
