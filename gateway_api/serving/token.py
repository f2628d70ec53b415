"""gunicorn's configuration of the alternative profile, `python:gateway_api.serving.token`."""

import os
import sys
from typing import Any

from gateway_api.audit.log import prepare_folder
from gateway_api.base.settings import TOKEN, Settings
from gateway_api.serving.configuration import (
    Off,
    address_or_last,
    common,
    forget_configuration,
)
from gateway_api.serving.worker import feed_watchdog, hold_signals_at_fork

# For the workers, which inherit it.
from gateway_api.web import app  # noqa: F401
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.process import raise_descriptor_limit
from gateway_contract.base.variables import BadSetting

#: EX_CONFIG of sysexits.h, which its unit does not start again.
STATUS_OF_OFF = 78

globals().update(common(TOKEN))

try:
    bind = address_or_last(Settings.from_environment(os.environ, TOKEN))
except (Off, BadSetting) as error:
    sys.stderr.write(f"the alternative profile is off: {error}\n")
    sys.exit(STATUS_OF_OFF)
except GatewayApiError as error:
    sys.exit(f"cannot start the alternative profile: {error}")


def on_starting(server: Any) -> None:
    forget_configuration(server)
    hold_signals_at_fork()
    feed_watchdog(server)
    raise_descriptor_limit()
    try:
        prepare_folder(Settings.from_environment(os.environ, TOKEN).audit)
    except OSError as error:
        server.log.critical("cannot start the alternative profile: GATEWAY_API_TOKEN_AUDIT: %s", error)
        sys.exit(1)
