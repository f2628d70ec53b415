"""The core's contract for failed sign-ons."""

from typing import Annotated

from msgspec import Meta

from gateway_contract.contract import Method, Record, about
from gateway_contract.core.sessions import (
    AccessInterface,
    BootId,
    HappenedAt,
    InnerVlanId,
    MacAddress,
    OuterVlanId,
    SourceName,
    Type,
)

SignOnUsername = Annotated[
    str | None, about("Login that the subscriber gave, null if it gave none.", "subscriber000006@lab.example")
]
#: Open: a core may know more exactly.
SIGN_ON_REASON = about(
    "Reason of the failure: `rejected` (an Access-Reject, RFC 2865 section 4.3, or a wrong password), "
    "`radius_timeout` (RADIUS did not reply), `no_address` (no address was free), `session_limit` (the "
    "subscriber or the gateway already has its maximum of sessions), `negotiation_failed` (the subscriber "
    "and the gateway agreed on no option), `no_response` (the subscriber did not reply), `unknown`, or "
    "another reason in snake_case.",
    "rejected",
    pattern="^[a-z][a-z0-9_]{0,63}$",
)
SignOnReason = Annotated[str, SIGN_ON_REASON]


class FailedSignOn(Record, frozen=True):
    """A sign-on attempt of a subscriber that did not start a session."""

    sequence: Annotated[int, about("Number of the failure, from 1 on, without holes.", 57)]
    at: HappenedAt
    type: Type
    username: SignOnUsername
    mac_address: MacAddress
    access_interface: AccessInterface
    outer_vlan_id: OuterVlanId
    inner_vlan_id: InnerVlanId
    source: SourceName
    reason: SignOnReason


class FailedSignOnsReply(Record, frozen=True):
    boot_id: BootId
    oldest: Annotated[int, about("The oldest failure that is held; at least 65536 are.", 1)]
    newest: Annotated[int, about("The newest failure that is held.", 57)]
    gap: Annotated[
        bool, about("Requested failures are not held. This reply has none, the next continues after newest.")
    ]
    failures: Annotated[tuple[FailedSignOn, ...], about("The failures.")]


class SubscribeFailedSignOns(Method[FailedSignOnsReply], frozen=True):
    """Stream the failed sign-ons, from now on or after a given failure. The call must have the flag `more`. A
    reply arrives at least every 15 seconds, with or without failures. The core closes the connection of a
    client that reads too slowly; the client can subscribe again after its last failure.

    Failed sign-ons are not session events, because a subscriber who tries again every few seconds would push
    out the events. A core that cannot report failed sign-ons omits the method, or reports none."""

    streams = True

    boot_id: Annotated[str | None, about("Run of the core that the failure is of.", "84a7e8343baf37f9")] = (
        None
    )
    after_sequence: Annotated[Annotated[int, Meta(ge=0)] | None, about("Number of the failure.", 57)] = None
