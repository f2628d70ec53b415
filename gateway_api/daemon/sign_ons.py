"""The sign-ons that fail at the core, as `daemon/events.py` has the events of its sessions."""

from collections.abc import Iterator

from gateway_api.base.errors import CoreUnavailable
from gateway_api.daemon.calls import decoded
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.core.sign_ons import FailedSignOnsReply, SubscribeFailedSignOns
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.protocol import ErrorReply

#: The core replies every 15 s at least.
_SILENCE = 40.0
_MISSING = ("org.varlink.service.MethodNotFound", "org.varlink.service.MethodNotImplemented")


class NotTold(CoreUnavailable):
    """The core does not tell of failed sign-ons: it is an older one, or another one."""


class SignOns:
    def __init__(self, client: Client) -> None:
        self._client = client

    def after(self, boot_id: str | None, sequence: int | None) -> Iterator[FailedSignOnsReply]:
        """Batches after a failure, or from now on if both are None. Ends with CoreUnavailable, or with
        NotTold."""
        wanted = SubscribeFailedSignOns(boot_id, sequence)
        try:
            for raw in self._client.stream(CORE.method(SubscribeFailedSignOns), wanted, silence=_SILENCE):
                yield decoded(FailedSignOnsReply, raw)
        except (Unreachable, ErrorReply) as error:
            is_missing = isinstance(error, ErrorReply) and error.name in _MISSING
            raise (NotTold if is_missing else CoreUnavailable)(str(error)) from error
