"""Calls of the hub's methods, in a worker."""

from typing import Any

from gateway_contract.base.errors import Conflict, GatewayApiError, HubUnavailable, NotFound
from gateway_contract.contract import Method
from gateway_contract.contract_client import ContractClient, decode
from gateway_contract.hub import HUB, TooManyWebhooksError, WebhookDeclaredError
from gateway_contract.varlink.client import Unreachable
from gateway_contract.varlink.protocol import ErrorReply


class Hub(ContractClient):
    """Its methods raise HubUnavailable, NotFound for a webhook that does not exist, and Conflict if there are
    too many, or if a webhook that is to go is declared."""

    contract, unavailable = HUB, HubUnavailable

    def translated(self, error: Unreachable | ErrorReply, call: Method[Any]) -> GatewayApiError:
        if not isinstance(error, ErrorReply):
            return super().translated(error, call)
        match error.name.removeprefix(f"{HUB.name}."):
            case "WebhookNotFound":
                return NotFound("No such webhook")
            case "WebhookDeclared":
                path = decode(WebhookDeclaredError, error.parameters, HubUnavailable).path
                return Conflict(f"The configuration declares it: delete {path}, and commit")
            case "TooManyWebhooks":
                most = decode(TooManyWebhooksError, error.parameters, HubUnavailable).most
                return Conflict(f"There are {most} webhooks, which is the most there may be")
            case _:
                return HubUnavailable(f"the hub replied with {error.name}")
