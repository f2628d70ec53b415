"""How gunicorn serves the gateway API. What an installation sets, it sets in the environment."""

import os
import sys

import gevent

from gateway_api.base.errors import GatewayApiError
from gateway_api.base.settings import Settings
from gateway_api.hub import hosted
from gateway_api.serving import slots
from gateway_api.serving.worker import prepare, report, tls_context

wsgi_app = "gateway_api.web.app:users()"
proc_name = "gateway-api"

bind = os.environ.get("GATEWAY_API_BIND") or "0.0.0.0:8443"
certfile = os.environ.get("GATEWAY_API_CERTIFICATE") or "/etc/gateway-api/tls/certificate.pem"
keyfile = os.environ.get("GATEWAY_API_KEY") or "/etc/gateway-api/tls/key.pem"
workers = os.environ.get("GATEWAY_API_WORKERS") or "2"

worker_class = "gateway_api.serving.worker.GatewayWorker"
worker_tmp_dir = os.environ.get("GATEWAY_API_RUNTIME") or "/run/gateway-api"
# For what is under way at a stop, before systemd loses patience. A reload has more.
graceful_timeout = 8
# Also how long the head of a request may take to come: never 0.
keepalive = 30

# With HTTP/2, a second request would wait behind a long answer.
http_protocols = "h1"
# 27 opens a socket for commands of its own unless told not to.
control_socket_disable = True
# Nobody in front of us may say who the client is.
forwarded_allow_ips = ""

logger_class = "gateway_api.serving.worker.Log"
accesslog = "-"


def on_starting(server):
    try:
        prepare()
    except GatewayApiError as error:
        server.log.critical("cannot start the gateway API: %s", error)
        sys.exit(1)


def when_ready(server):
    try:
        hosted.start(Settings.from_environment(os.environ))
        # Not before: where another one runs, the files are that one's, and the hub has refused to start.
        slots.empty()
    except (GatewayApiError, OSError) as error:
        server.log.critical("cannot start the gateway API: %s", error)
        sys.exit(1)


def pre_fork(server, worker):
    worker.slot = slots.lowest_free(other.slot for other in server.WORKERS.values())


def post_fork(server, worker):
    hosted.forget(listener.fileno() for listener in server.LISTENERS)


def post_worker_init(worker):
    gevent.get_hub().print_exception = report


def child_exit(server, worker):
    slots.vacate(worker.slot)


def ssl_context(config, default_ssl_context_factory):
    return tls_context(config, default_ssl_context_factory)
