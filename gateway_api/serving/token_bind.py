"""Where the alternative profile listens, if anywhere: asked of the core before gunicorn binds to it."""

import logging
from contextlib import closing
from ipaddress import ip_address

from gateway_api.base.errors import CoreUnavailable, GatewayApiError
from gateway_api.base.settings import Settings
from gateway_api.daemon.calls import Calls
from gateway_api.daemon.commands import Daemon
from gateway_api.wire.varlink.client import Client

_log = logging.getLogger("gunicorn.error")

_CALL_TIMEOUT = 3.0

#: EX_CONFIG of sysexits.h: another start would end in the same way.
STATUS_OF_OFF = 78


#: Where it listens, once it does.
_listening: str | None = None


class Off(GatewayApiError):
    """The profile isn't to be served; the text says what would have to change."""


def address(settings: Settings) -> str:
    """Address and port as gunicorn takes them, from the running configuration. Raises Off and
    CoreUnavailable."""
    with closing(Client(settings.core_socket, timeout=_CALL_TIMEOUT)) as client:
        access = Daemon(Calls(client)).token_access()
    if access.auth_token is None:
        raise Off("the running configuration has no api.auth_token")
    try:
        listen = ip_address(access.listen_address)
    except ValueError as error:
        raise CoreUnavailable(f"it says to listen at what is no address: {error}") from error
    if not (listen.is_loopback or settings.beyond_loopback):
        raise Off(
            f"api.listen_address {listen} is not a loopback address, and plain HTTP would show the token to"
            " everybody on the way; GATEWAY_API_TOKEN_BEYOND_LOOPBACK=yes allows it nevertheless"
        )
    return f"[{listen}]:{access.listen_port}" if listen.version == 6 else f"{listen}:{access.listen_port}"


def where_to_listen(settings: Settings) -> str:
    """`address`, in the arbiter: one that serves already goes on where it is, if the core can't say where it
    would be now. Raises Off, and CoreUnavailable at a start."""
    global _listening
    try:
        _listening = address(settings)
    except CoreUnavailable as error:
        if _listening is None:
            raise
        _log.warning("it goes on listening at %s: %s", _listening, error)
    return _listening
