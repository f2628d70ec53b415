"""Environment variables of the services. The settings, the environment file of the units, gateway-api.env(5)
and the reference are made from these definitions."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.logs import FORMATS

#: The configuration of an appliance, and that of its core.
ETC = Path("/etc/gateway-api")
CONFIGURATION = Path("/var/lib/gateway-core/configuration")


@dataclass(frozen=True)
class Variable:
    """Environment variable: its name, its default (which may be empty), and a description."""

    name: str
    default: str
    meaning: str


#: The variables by their purpose, in the order of the documents.
GROUPS = {
    "The API": (
        Variable(
            "SVC_API_SECRET",
            "",
            "Signs the tokens: 32 bytes or more, for example from `openssl rand -hex 32`. If it is not set, "
            "the API uses systemd's credential `secret`, which is /etc/gateway-api/secret. If there is none "
            "either, the API uses a random secret, and a restart of the API ends all tokens.",
        ),
        Variable("GATEWAY_API_BIND", "0.0.0.0:8443", "Address and port."),
        Variable(
            "GATEWAY_API_CERTIFICATE",
            "/etc/gateway-api/tls/certificate.pem",
            "TLS certificate in PEM. systemd reads the default file as root. Another one must be readable "
            "for the user gateway-api.",
        ),
        Variable("GATEWAY_API_KEY", "/etc/gateway-api/tls/key.pem", "Key of the certificate in PEM."),
        Variable("GATEWAY_API_WORKERS", "2", "Worker processes."),
        Variable(
            "GATEWAY_API_RUNTIME", "/run/gateway-api", "Folder for sockets and counters of the workers."
        ),
        Variable(
            "GATEWAY_API_STATE",
            "/var/lib/gateway-api",
            "Folder for data that survives a reboot: revoked tokens, failed logins, the history of sessions"
            " and, by default, the audit log. It must exist.",
        ),
        Variable(
            "GATEWAY_API_AUDIT",
            "/var/lib/gateway-api/audit",
            "Folder of the audit log. Its parent must exist. The default is `audit` in GATEWAY_API_STATE.",
        ),
        Variable(
            "GATEWAY_API_AUDIT_MEBIBYTES",
            "64",
            "Size limit of each database of the audit log, 1 to 1024.",
        ),
        Variable(
            "GATEWAY_API_WEBHOOK_CERTIFICATES",
            "",
            "CA certificates for HTTPS receivers of webhooks, in PEM. The default is those of the package "
            "certifi.",
        ),
    ),
    "The API and the core": (
        Variable(
            "GATEWAY_CORE_SOCKET",
            "/run/gateway-core/core.sock",
            "Socket at which the API calls the core.",
        ),
        Variable("GATEWAY_API_LOG_FORMAT", "keyvalue", "Format of log lines: keyvalue or json."),
        Variable("GATEWAY_API_LOG_LEVEL", "info", "Lowest logged level: debug, info, warning or error."),
    ),
    "The alternative profile, gateway-api-token.service": (
        Variable(
            "GATEWAY_API_TOKEN_BEYOND_LOOPBACK",
            "no",
            "Only `yes` allows the profile to listen beyond loopback. It serves plain HTTP: there everyone "
            "on the path can read the token.",
        ),
        Variable("GATEWAY_API_TOKEN_AUDIT", "/var/lib/gateway-api-token/audit", "Folder of its audit log."),
        Variable(
            "GATEWAY_API_TOKEN_RUNTIME", "/run/gateway-api-token", "Its folder for sockets and counters."
        ),
        Variable("GATEWAY_API_TOKEN_WORKERS", "2", "Its worker processes."),
    ),
}

_DEFAULTS = {variable.name: variable.default for group in GROUPS.values() for variable in group}
NAMES = frozenset(_DEFAULTS)


def value(environment: Mapping[str, str], name: str) -> str:
    """Return the value of a variable, or its default if the environment has no value or an empty value."""
    return environment.get(name) or _DEFAULTS[name]


class BadSetting(GatewayApiError):
    """Error of an environment variable that is missing or unusable. The text names the variable."""


def log_format(environment: Mapping[str, str]) -> str:
    """Return the format of log lines, one of `FORMATS`. Raises BadSetting if the variable has another
    value."""
    return choice(environment, "GATEWAY_API_LOG_FORMAT", *FORMATS)


def log_level(environment: Mapping[str, str]) -> int:
    """Return the lowest level that is logged, as a number of the module logging. Raises BadSetting if the
    variable has an unknown level."""
    chosen = choice(environment, "GATEWAY_API_LOG_LEVEL", "debug", "info", "warning", "error")
    return logging.getLevelNamesMapping()[chosen.upper()]


def read_log_style(environment: Mapping[str, str]) -> tuple[str, int, BadSetting | None]:
    """Return the format and the level of the log, and None. If a variable has a bad value, return the default
    format, the default level and the error, so that the error can be logged."""
    try:
        return log_format(environment), log_level(environment), None
    except BadSetting as error:
        return log_format({}), log_level({}), error


def choice(environment: Mapping[str, str], variable: str, *choices: str) -> str:
    """Return the value of an environment variable, or its default if the variable is not set. Raises
    BadSetting if the value is not one of `choices`."""
    chosen = value(environment, variable)
    if chosen not in choices:
        raise BadSetting(f"{variable} must be {' or '.join(choices)}, not {chosen!r}")
    return chosen


def core_socket(environment: Mapping[str, str]) -> Path:
    """Return the path of the core daemon's socket."""
    return Path(value(environment, "GATEWAY_CORE_SOCKET"))
