"""Configuration of gunicorn for the alternative profile, `python:gateway_api.serving.token`."""

import os
import sys
from typing import Any

from gateway_api.audit.log import prepare_folder
from gateway_api.base.settings import TOKEN, Settings
from gateway_api.serving.configuration import ProfileOff, choose_address, make_settings, unload_configuration
from gateway_api.serving.worker import prepare_arbiter

# Imported for the workers, which inherit the application.
from gateway_api.web import app  # noqa: F401
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.variables import BadSetting

#: Exit status EX_CONFIG of sysexits.h. After this status, systemd does not restart the unit.
EXIT_STATUS_OFF = 78

globals().update(make_settings(TOKEN))

try:
    bind = choose_address(Settings.from_environment(os.environ, TOKEN))
except (ProfileOff, BadSetting) as error:
    sys.stderr.write(f"the alternative profile is off: {error}\n")
    sys.exit(EXIT_STATUS_OFF)
except GatewayApiError as error:
    sys.exit(f"cannot start the alternative profile: {error}")


def on_starting(server: Any) -> None:
    unload_configuration(server)
    prepare_arbiter(server)
    try:
        prepare_folder(Settings.from_environment(os.environ, TOKEN).audit)
    except OSError as error:
        server.log.critical(
            "cannot start the alternative profile, GATEWAY_API_TOKEN_AUDIT is unusable: %s", error
        )
        sys.exit(1)
