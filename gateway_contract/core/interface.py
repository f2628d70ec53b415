"""`org.gatewayapi.core`: the varlink interface between the management API and the core daemon of a subscriber
gateway."""

from typing import Any

from gateway_contract.contract import Contract, Failure, Method
from gateway_contract.core import (
    configuration,
    health,
    impact,
    jobs,
    network,
    sessions,
    sign_ons,
    traffic,
)


def _subclasses_of(kind: type[Any]) -> tuple[type[Any], ...]:
    """Return the subclasses of a class that the modules of the contract declare, in the order of their
    declaration."""
    return tuple(
        member
        for module in (sessions, sign_ons, traffic, jobs, configuration, impact, network, health)
        for member in vars(module).values()
        if isinstance(member, type) and issubclass(member, kind) and member.__module__ == module.__name__
    )


#: The methods without which the API cannot keep its own contract. All others are optional.
REQUIRED: frozenset[type[Method[Any]]] = frozenset(
    (
        configuration.CheckAccess,
        configuration.CommitCandidate,
        configuration.CompareConfiguration,
        configuration.DiscardCandidate,
        configuration.EditCandidate,
        configuration.GetConfiguration,
        configuration.GetLogin,
        configuration.RollbackCandidate,
        network.GetBgpSummary,
        network.GetDemuxState,
        network.ListCgnatSessions,
        network.ListInterfaces,
        network.ListOverheadProfiles,
        network.ListQos,
        network.ListRoutes,
        network.ListVlans,
        sessions.DisconnectInterface,
        sessions.DisconnectSession,
        sessions.GetHealth,
        sessions.GetSession,
        sessions.GetStatistics,
        sessions.ListSessions,
        sessions.SetSessionRate,
        sessions.SubscribeEvents,
    )
)
_METHODS = _subclasses_of(Method)

CORE = Contract(
    "org.gatewayapi.core",
    """The core daemon of a broadband subscriber gateway, as the management API needs it.

    Any daemon that serves this interface at a Unix socket can stand behind the API. Records travel on to HTTP
    clients as they are, so their fields are those of the API's own contract. Rates are bits a second, times
    are Unix epoch seconds, addresses are text. In a record, a field marked ? is null and never left out;
    parameters and next_cursor may be either.

    With each change the API passes an id of the call as request_id, and records the change itself.
    ListChanges tells of the changes that come without one. When a reply was lost, ResolveCalls tells what
    became of the call.

    Lists come whole unless a page is asked for. A page holds at most limit records, tells how many there are
    in all, and gives a cursor for the next one, or null at the end. A whole list comes in several replies to
    a call with more: each has some of the records, and their count.

    A core may leave out the methods that are marked as optional. It replies to a call of such a method with
    org.varlink.service.MethodNotFound or MethodNotImplemented. The API then responds 501 to requests that
    require the method, and does without it elsewhere.
    """,
    _METHODS,
    _subclasses_of(Failure),
    frozenset(_METHODS) - REQUIRED,
)
