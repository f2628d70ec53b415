"""Errors of requests to a gateway, each with lines for the user, and the exit status of a command that ends
with the error."""

from enum import IntEnum
from typing import Self

from gateway_contract.base.errors import GatewayApiError


class ExitStatus(IntEnum):
    """Exit status of a command, with the meaning of the status."""

    meaning: str

    SUCCESS = 0, "success"
    REFUSED = 1, "nothing was found, or the request was refused, not confirmed, or only done in part"
    USAGE = 2, "wrong arguments or files, or no terminal for a confirmation"
    UNREACHABLE = 3, "the gateway or its core daemon does not respond"
    LOGIN_REQUIRED = 4, "a login is necessary, or the role of the user is not sufficient"
    #: 128 and the number of SIGINT.
    INTERRUPTED = 130, "stopped by Ctrl-C"

    def __new__(cls, value: int, meaning: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class ClientError(GatewayApiError):
    """Error of a request or of the command line. `lines` first say what happened, then what to do. A line may
    contain any characters, because some lines come from a gateway."""

    status = ExitStatus.REFUSED

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class BadContext(ClientError):
    """Error about a context: the context is unknown, the URL of the gateway is invalid, or the file of
    contexts cannot be read or written."""

    status = ExitStatus.USAGE


class Refused(ClientError):
    """Request that the gateway refuses. A retry would be refused, too."""


class NoSuchRecord(Refused):
    """Request for a record that the gateway does not have."""


class LoginRequired(ClientError):
    """Error of a request or a login: the token is missing or invalid, the role is insufficient, or the login
    failed."""

    status = ExitStatus.LOGIN_REQUIRED


class NoResponse(ClientError):
    """Error of a request without a usable response from the gateway or from the core daemon. A retry may
    succeed."""

    status = ExitStatus.UNREACHABLE
