"""Why a command ends without success, as exit status and text."""

from enum import IntEnum

from gatewayctl.client.errors import (
    BadContext,
    ClientError,
    LoginRequired,
    NoResponse,
    NoSuchRecord,
    Refused,
)


class ExitStatus(IntEnum):
    """The exit statuses of all commands. With --all, the highest of all gateways."""

    DONE = 0
    #: Nothing found; refused by the API or by the user, or only done in part.
    REFUSED = 1
    USAGE = 2
    #: The gateway or its core daemon does not respond.
    UNREACHABLE = 3
    #: No login, or a role that is not sufficient.
    SIGN_IN = 4
    #: By Ctrl-C: 128 and the number of the signal.
    INTERRUPTED = 130


#: For the documents, in the order of the statuses.
MEANINGS = {
    ExitStatus.DONE: "success",
    ExitStatus.REFUSED: "nothing was found, or the request was refused, not confirmed, or only done in part",
    ExitStatus.USAGE: "wrong arguments or files, or no terminal for a confirmation",
    ExitStatus.UNREACHABLE: "the gateway or its core daemon does not respond",
    ExitStatus.SIGN_IN: "a login is necessary, or the role of the user is not sufficient",
    ExitStatus.INTERRUPTED: "stopped by Ctrl-C",
}


class CommandFailure(ClientError):
    """Ends the command, for a reason that the client does not know. `lines` are for standard error."""

    def __init__(self, status: ExitStatus, *lines: str) -> None:
        super().__init__(*lines)
        self.status = status


_STATUSES: dict[type[ClientError], ExitStatus] = {
    BadContext: ExitStatus.USAGE,
    Refused: ExitStatus.REFUSED,
    NoSuchRecord: ExitStatus.REFUSED,
    LoginRequired: ExitStatus.SIGN_IN,
    NoResponse: ExitStatus.UNREACHABLE,
}


def status_of(failure: ClientError) -> ExitStatus:
    """Return the exit status after a failure."""
    return failure.status if isinstance(failure, CommandFailure) else _STATUSES[type(failure)]
