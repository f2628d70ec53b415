"""Errors that a command detects itself, without a gateway, and the exit statuses of commands."""

from gateway_client.errors import ClientError, ExitStatus

#: Added to the number of gateways that failed. Lower statuses are those of ExitStatus.
_STATUS_OF_MANY = 10
#: Higher statuses would reach those of signals, which begin at 128.
_MAX_COUNTED_GATEWAYS = 100

#: Pairs of exit status and meaning, for texts.
EXIT_STATUSES = (
    *((str(int(status)), status.meaning) for status in ExitStatus if status < _STATUS_OF_MANY),
    (
        f"{_STATUS_OF_MANY + 1} to {_STATUS_OF_MANY + _MAX_COUNTED_GATEWAYS}",
        f"with --all or --on, {_STATUS_OF_MANY} plus the number of gateways that failed, or "
        f"{_STATUS_OF_MANY + _MAX_COUNTED_GATEWAYS} for more than {_MAX_COUNTED_GATEWAYS}",
    ),
    *((str(int(status)), status.meaning) for status in ExitStatus if status > _STATUS_OF_MANY),
)


def get_exit_status_of_many(failed_count: int) -> int:
    """Return the exit status of a command for many gateways: 0 if `failed_count` is 0; otherwise 10 plus the
    number of gateways that failed, at most 110."""
    return _STATUS_OF_MANY + min(failed_count, _MAX_COUNTED_GATEWAYS) if failed_count else 0


class CommandError(ClientError):
    """Error that the command itself detects, with the exit status for this error."""

    def __init__(self, status: ExitStatus, *lines: str) -> None:
        super().__init__(*lines)
        self.status = status


class NothingFound(CommandError):
    """Search that matches no record of a gateway. The first line is the same for all gateways."""

    def __init__(self, *lines: str) -> None:
        super().__init__(ExitStatus.REFUSED, *lines)
