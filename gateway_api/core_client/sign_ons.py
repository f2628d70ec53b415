"""The sign-ons that fail at the core, as `core_client/events.py` has the events of its sessions."""

from collections.abc import Iterator

from gateway_api.core_client.calls import followed
from gateway_api.wire.core.sign_ons import FailedSignOnsReply, SubscribeFailedSignOns
from gateway_api.wire.varlink.client import Client

#: The core replies every 15 s at least.
_SILENCE = 40.0


class SignOns:
    def __init__(self, client: Client) -> None:
        self._client = client

    def after(self, boot_id: str | None, sequence: int | None) -> Iterator[FailedSignOnsReply]:
        """Batches after a failure, or from now on if both are None. Ends with CoreUnavailable, or with
        CoreLacksMethod."""
        return followed(self._client, SubscribeFailedSignOns(boot_id, sequence), silence=_SILENCE)
