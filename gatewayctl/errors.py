"""Error that a command detects itself, without a gateway."""

from gateway_client.errors import ClientError, ExitStatus


class CommandError(ClientError):
    """Error that the command itself detects, with the exit status for this error."""

    def __init__(self, status: ExitStatus, *lines: str) -> None:
        super().__init__(*lines)
        self.status = status
