"""`org.gatewayapi.core`: what the management API needs of the core daemon of a subscriber gateway."""

from gateway_api.wire.contract import Contract
from gateway_api.wire.core import configuration, gateway

CORE = Contract(
    "org.gatewayapi.core",
    """The core daemon of a broadband subscriber gateway, as the management API needs it.

    Any daemon that serves this interface at a Unix socket can stand behind the API. Records travel on to HTTP
    clients as they are, so their fields are those of the API's own contract. Rates are bits a second, times
    are Unix epoch seconds, addresses are text. In a record, a field marked ? is null and never left out;
    parameters and next_cursor may be either.

    With each change the API passes the id of its own request as request_id, and records the change itself.
    ListChanges tells of the changes that come without one.

    Lists come whole unless a page is asked for. A page holds at most limit records, tells how many there are
    in all, and gives a cursor for the next one, or null at the end.
    """,
    (
        gateway.GetHealth,
        gateway.GetStatistics,
        gateway.ListSessions,
        gateway.GetSession,
        gateway.DisconnectSession,
        gateway.DisconnectInterface,
        gateway.SetSessionRate,
        gateway.SubscribeEvents,
        configuration.GetConfiguration,
        configuration.GetCandidate,
        configuration.EditCandidate,
        configuration.DiscardCandidate,
        configuration.RollbackCandidate,
        configuration.CompareConfiguration,
        configuration.CommitCandidate,
        configuration.ReplaceConfiguration,
        configuration.AmendConfiguration,
        configuration.RestoreRevision,
        configuration.ConfirmCommit,
        configuration.ListChanges,
        configuration.ListArchive,
        configuration.GetArchivedRevision,
        configuration.CheckAccess,
        configuration.GetLogin,
        configuration.GetDeniedNetworks,
        configuration.EndTokens,
        configuration.GetTokenAccess,
        gateway.ListInterfaces,
        gateway.ListVlans,
        gateway.ListQos,
        gateway.ListOverheadProfiles,
        gateway.GetBgpSummary,
        gateway.ListRoutes,
        gateway.ListCgnatSessions,
        gateway.GetDemuxState,
    ),
    (
        gateway.SessionNotFoundError,
        gateway.InterfaceNotFoundError,
        configuration.EditRefusedError,
        configuration.PathNotFoundError,
        configuration.ConfigurationInvalidError,
        configuration.ConfigurationChangedError,
        configuration.RevisionNotFoundError,
        configuration.UserNotFoundError,
        configuration.CandidateStagedError,
        configuration.NothingToConfirmError,
        configuration.StepFailedError,
        gateway.ReplyTooLargeError,
    ),
)
