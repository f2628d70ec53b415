"""The page of the values of states, kinds and results."""

from collections.abc import Iterator

from gateway_api.cli.documents.markdown import code, paragraph, table
from gateway_api.history.record import ClockState, TimelineEvent
from gateway_api.wire.contract import Enumeration
from gateway_api.wire.core.dependencies import DependencyState
from gateway_api.wire.core.faults import FaultKind
from gateway_api.wire.core.impact import ServiceAction
from gateway_api.wire.core.jobs import JobState
from gateway_api.wire.core.network import DemuxState
from gateway_api.wire.core.sessions import REASON, SessionState
from gateway_api.wire.core.sign_ons import SIGN_ON_REASON
from gateway_api.wire.hub import DeliveryResult, WebhookOrigin, WebhookState

_INTRODUCTION = """
What the states, kinds and reasons in responses, in the log and on the page mean.
"""
#: Reasons are open: a core may know another one.
_REASONS = {"End of a session": REASON, "Failed sign-on": SIGN_ON_REASON}
_ENUMERATIONS: dict[str, type[Enumeration]] = {
    "State of a session": SessionState,
    "State of a dependency": DependencyState,
    "Kind of a fault": FaultKind,
    "State of a job": JobState,
    "State of a webhook": WebhookState,
    "Origin of a webhook": WebhookOrigin,
    "Result of a delivery": DeliveryResult,
    "Event in a timeline": TimelineEvent,
    "Clock of a record of the history": ClockState,
    "State of a VLAN of the demux": DemuxState,
    "Action on a service at a commit": ServiceAction,
}


def page() -> str:
    return "".join(_page())


def _page() -> Iterator[str]:
    yield "# Values\n\n" + paragraph(_INTRODUCTION)
    for title, reason in _REASONS.items():
        yield f"## {title}\n\n" + paragraph(reason.description or "")
    for title, values in _ENUMERATIONS.items():
        yield f"## {title}\n\n"
        yield table(("value", "meaning"), ((code(each.value), each.comment) for each in values)) + "\n"
    yield "## See also\n\n- [Operations](operations.md)\n- [Troubleshooting](../troubleshooting.md)\n"
