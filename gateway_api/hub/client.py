"""Calls of the hub's methods, in a worker."""

from typing import Any, TypeVar

import msgspec

from gateway_api.base.errors import Conflict, HubUnavailable, NotFound
from gateway_api.wire.contract import Method, reply_of
from gateway_api.wire.hub import HUB, WebhookDeclaredError
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.protocol import ErrorReply

R = TypeVar("R")


class Hub:
    """Its methods raise HubUnavailable, NotFound for a webhook that does not exist, and Conflict if there are
    too many, or if a webhook that is to go is declared."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def reply(self, call: Method[R], *, timeout: float | None = None) -> R:
        """`timeout` is in seconds; None is the client's own."""
        reply: type[R] = reply_of(type(call))
        return msgspec.json.decode(self.raw(call, timeout=timeout), type=reply)

    def raw(self, call: Method[Any], *, timeout: float | None = None) -> msgspec.Raw:
        """The whole reply, unparsed."""
        try:
            return self._client.call(HUB.method(type(call)), call, timeout=timeout)
        except Unreachable as error:
            raise HubUnavailable(str(error)) from error
        except ErrorReply as error:
            match error.name.removeprefix(f"{HUB.name}."):
                case "WebhookNotFound":
                    raise NotFound("No such webhook") from error
                case "WebhookDeclared":
                    path = msgspec.json.decode(error.parameters, type=WebhookDeclaredError).path
                    raise Conflict(f"The configuration declares it: delete {path}, and commit") from error
                case "TooManyWebhooks":
                    raise Conflict("There are 100 webhooks, which is the most there may be") from error
                case _:
                    raise HubUnavailable(f"the hub replied with {error.name}") from error
