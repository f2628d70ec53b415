"""The errors of the client."""

from gateway_contract.base.errors import GatewayApiError


class ClientError(GatewayApiError):
    """`lines` say for people what happened, and then what to do. Some are from a gateway, and may have any
    characters."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class BadContext(ClientError):
    """No such context, a URL that no gateway has, or a file of contexts that cannot be read or written."""


class Refused(ClientError):
    """The gateway refuses the request: another attempt would not succeed either."""


class NoSuchRecord(Refused):
    """The gateway does not have what the path names."""


class LoginRequired(ClientError):
    """The token is missing or not valid, the role of the user is not sufficient, or a login failed."""


class NoResponse(ClientError):
    """The gateway or its core daemon gives no response that can be used. Another attempt may succeed."""
