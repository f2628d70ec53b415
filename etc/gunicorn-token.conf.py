"""How gunicorn serves the alternative profile: plain HTTP, and where the running configuration says."""

import os
import resource
import sys

from gateway_api.audit.log import prepare_folder
from gateway_api.base.errors import GatewayApiError
from gateway_api.base.settings import TOKEN, BadSetting, Settings
from gateway_api.serving.token_bind import STATUS_OF_OFF, Off, where_to_listen

wsgi_app = "gateway_api.web.app:token()"
proc_name = "gateway-api-token"

try:
    bind = where_to_listen(Settings.from_environment(os.environ, TOKEN))
except (Off, BadSetting) as error:
    sys.stderr.write(f"the alternative profile is off: {error}\n")
    sys.exit(STATUS_OF_OFF)
except GatewayApiError as error:
    sys.exit(f"cannot start the alternative profile: {error}")
workers = os.environ.get("GATEWAY_API_TOKEN_WORKERS") or "2"

worker_class = "gateway_api.serving.worker.GatewayWorker"
worker_tmp_dir = os.environ.get("GATEWAY_API_TOKEN_RUNTIME") or "/run/gateway-api-token"
# For what is under way at a stop, before systemd loses patience. A reload has more.
graceful_timeout = 8
# Also how long the head of a request may take to come: never 0.
keepalive = 30

# 27 opens a socket for commands of its own unless told not to.
control_socket_disable = True
# Nobody in front of us may say who the client is.
forwarded_allow_ips = ""

logger_class = "gateway_api.serving.worker.Log"
accesslog = "-"


def on_starting(server):
    # A descriptor for each connection: the usual soft limit is for select(), which nobody here uses.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        prepare_folder(Settings.from_environment(os.environ, TOKEN).audit)
    except OSError as error:
        server.log.critical("cannot start the alternative profile: GATEWAY_API_TOKEN_AUDIT: %s", error)
        sys.exit(1)
