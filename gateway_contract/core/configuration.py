"""The core's contract for the configuration: documents, commits, users, and changes by clients other than the
API."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from gateway_contract.contract import (
    Command,
    Enumeration,
    Failure,
    Method,
    Nothing,
    Parameters,
    Record,
    about,
    count,
)
from gateway_contract.core.impact import Effect, ImpactPreview, MaxSessionsDropped

#: Seconds that a commit may wait to be confirmed.
MAX_CONFIRM_SECONDS = 86_400

#: Characters of an author or a comment.
MAX_COMMENT_LENGTH = 256


class Role(Enumeration):
    """The rights of a user of the API."""

    ADMIN = "admin", "Everything."
    OPERATOR = "operator", "Read, but not change."


class EditAction(Enumeration):
    """The kind of an edit."""

    SET = "set", "Gives a path a value."
    DELETE = "delete", "Removes what is at a path."


class ProblemCode(Enumeration):
    """The kind of a problem."""

    INVALID = "invalid", "The value breaks a rule."
    MISSING = "missing", "A value is required and is not there."
    UNKNOWN = "unknown", "There is no field of that name."


Document = Annotated[dict[str, Any], about("The sections of the configuration.")]
Etag = Annotated[
    str, about("Stands for the running configuration and the candidate together.", "2f9c1a7be0d4")
]
IfMatch = Annotated[Sequence[str] | None, about("Fails unless the etag is one of these.", ["2f9c1a7be0d4"])]
Author = Annotated[str, about("User that committed it.", "admin")]
Comment = Annotated[str | None, about("Reason, null without a comment.", "faster for everybody")]
CommittedAt = Annotated[int, count("When, Unix epoch seconds.", 1795271513)]
Revision = Annotated[int, about("Number in the archive, 1 being the newest.", 1, minimum=1)]
Deadline = Annotated[
    int | None,
    about("When the last commit is undone unless confirmed, Unix epoch seconds; null for never.", None),
]
Action = Annotated[str | None, about("Name in ListChanges: two words with a dot between.", "rescue.enable")]
Difference = Annotated[
    str,
    about(
        "Lines that begin with - for what was and + for what will be.",
        '- qos.default_down = "100mbit"\n+ qos.default_down = "200mbit"\n',
    ),
]
StagedChanges = Annotated[int, count("How many values a commit would change.", 1)]
IsCommitted = Annotated[bool, about("False when there was nothing to commit.", True)]
Changes = Annotated[int, count("How many values changed.", 1)]
ArchivedAs = Annotated[int | None, about("Revision of the configuration that ran before; null without.", 1)]


# Documents


class ConfigurationReply(Record, frozen=True):
    configuration: Document
    etag: Etag


class GetConfiguration(Method[ConfigurationReply], frozen=True):
    """Return the running configuration, with masked secrets. `etag` identifies the running configuration and
    the candidate together, and changes if either changes. A method with `if_match` fails unless `if_match`
    contains this etag."""


class GetCandidate(Method[ConfigurationReply], frozen=True):
    """Return the candidate, with masked secrets: the running configuration with all staged changes."""


class ConfigurationDifference(Record, frozen=True):
    """The difference between two configurations, with masked secrets."""

    diff: Difference
    etag: Etag
    confirm_deadline: Deadline = None


# Staging


@dataclass(frozen=True)
class Edit:
    """A change to the configuration. `value` is any JSON value. A string is converted to the type of the
    path. A deletion ignores `value`."""

    action: EditAction
    path: str
    value: Any = None


class ConfigurationEdit(Parameters, frozen=True):
    """A change to the configuration."""

    action: Annotated[EditAction, about("What to do.", "set")]
    path: Annotated[
        str,
        about('Dotted: names, indexes of lists, keys of their items, or "quoted text".', "qos.default_down"),
    ]
    value_json: Annotated[
        str | None,
        about(
            "JSON text, left out to delete. A JSON string is read as what belongs at the path: a number, "
            "true or false, a list in JSON.",
            '"200mbit"',
        ),
    ] = None


Edits = Annotated[tuple[ConfigurationEdit, ...], about("All are made, in their order, or none.")]


StagedBefore = Annotated[
    ConfigurationDifference, about("From the running configuration to the candidate, before the change.")
]


class EditedValue(Record, frozen=True):
    """A value before and after an edit, with masked secrets."""

    path: Annotated[
        str, about("The path of the edit, with the keys of items in place of indexes.", "qos.default_down")
    ]
    before_json: Annotated[str | None, about("JSON text of the value before; null without.", '"100mbit"')]
    after_json: Annotated[str | None, about("JSON text of the value after; null without.", '"200mbit"')]


class EditReply(Record, frozen=True):
    etag: Etag
    changes: Annotated[tuple[EditedValue, ...], about("One for each edit, in their order.")]


class EditCandidate(Command[EditReply], frozen=True):
    """Stage all edits in their order, or none."""

    edits: Edits
    if_match: IfMatch = None


class DiscardReply(Record, frozen=True):
    etag: Etag
    before: StagedBefore


class DiscardCandidate(Command[DiscardReply], frozen=True):
    """Discard all staged changes: the candidate becomes a copy of the running configuration."""

    if_match: IfMatch = None


class StagedReply(Record, frozen=True):
    changes: StagedChanges
    etag: Etag
    before: StagedBefore


class ReplaceCandidate(Command[StagedReply], frozen=True):
    """Replace the whole candidate, or change nothing on error. A masked secret, as returned by GetCandidate,
    keeps the secret of the candidate; items of lists are matched by their keys. Required values may be
    missing until the commit."""

    configuration: Document
    if_match: IfMatch = None


class RollbackCandidate(Command[StagedReply], frozen=True):
    """Replace the candidate by an archived configuration."""

    revision: Revision
    if_match: IfMatch = None


class ComparisonReply(ConfigurationDifference, frozen=True):
    impact: ImpactPreview = None


class CompareConfiguration(Method[ComparisonReply], frozen=True):
    """Return the difference between two configurations, with masked secrets. The older configuration is the
    running configuration or an archived configuration. The newer configuration is the candidate, the running
    configuration or an archived configuration. The difference from the running configuration to the candidate
    includes the effect of a commit on services and sessions."""

    revision: Annotated[int | None, about("The archived one, the running one without.", 1)] = None
    to_revision: Annotated[
        int | None,
        about("The archived one, or 0 for the running one, instead of the candidate.", 1, minimum=0),
    ] = None


# Commits


class CommitReply(Record, frozen=True, kw_only=True):
    """The result of a commit. If there was nothing to commit, author, comment and committed_at describe the
    last commit."""

    committed: IsCommitted
    changes: Changes
    archived_revision: ArchivedAs = None
    author: Author
    comment: Comment = None
    committed_at: CommittedAt
    confirm_deadline: Deadline = None
    etag: Etag
    impact: Effect
    before: Annotated[
        ConfigurationDifference, about("The committed changes; etag and confirm_deadline before the commit.")
    ]


class CommitCandidate(Command[CommitReply], frozen=True):
    """Commit the candidate: validate it, render, check and apply the files of the services, and archive the
    previous configuration. If an earlier commit waits for its confirmation, a commit with confirm_seconds
    moves the deadline, and a commit of changes without confirm_seconds confirms the earlier commit. When the
    reply arrives, the services and the gateway use the new configuration, and a power cut does not undo the
    commit."""

    author: Author
    comment: Comment = None
    confirm_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_CONFIRM_SECONDS)] | None,
        about("Seconds, 1 to 86400, after which the commit is undone unless ConfirmCommit was called.", 120),
    ] = None
    max_sessions_dropped: MaxSessionsDropped = None
    if_match: IfMatch = None


class ReplaceConfiguration(Command[CommitReply], frozen=True):
    """Replace the running configuration at once, as staging and a commit would do, or change nothing on
    error. A masked secret, as returned by GetConfiguration, keeps the running secret; items of lists are
    matched by their keys. Fails if changes are staged."""

    configuration: Document
    author: Author
    comment: Comment = None
    if_match: IfMatch = None


class AmendConfiguration(Method[CommitReply], frozen=True):
    """Apply edits to the running configuration at once and in order, or change nothing on error. Staged
    changes stay staged. If a commit waits for its confirmation, it continues to wait, and the edits are also
    applied to the configuration that returns without a confirmation. ListChanges reports the change as
    `action`, or as configuration.amend."""

    edits: Edits
    author: Author
    comment: Comment = None
    action: Action = None
    if_match: IfMatch = None


class RestoreRevision(Method[CommitReply], frozen=True):
    """Make an archived configuration the running configuration at once. Staged changes stay staged. If a
    commit waits for its confirmation, and the archived configuration is the configuration that returns
    without a confirmation, that commit is confirmed. ListChanges reports the change as `action`, or as
    configuration.restore."""

    revision: Revision
    author: Author
    comment: Comment = None
    action: Action = None


class ConfirmCommit(Command[Nothing], frozen=True):
    """Confirm the commit that waits for its confirmation."""


# Changes by others


class ChangeRecord(Record, frozen=True):
    """A change that the API did not make. `action` is subscribers.disconnect,
    subscribers.disconnect_by_interface, subscribers.change_rate; configuration.edit_all, replace_candidate,
    discard, rollback, commit, replace, confirm, end_tokens, amend, restore; configuration.return when a
    commit was not confirmed in time; or the name that the caller gave."""

    sequence: Annotated[int, about("Number of the change, from 1 on, without holes.", 57)]
    at: Annotated[int, count("When, Unix epoch seconds.", 1795271513)]
    action: Annotated[str, about("What was done.", "configuration.commit")]
    user: Annotated[str, about("User of the process that called, or core.", "root")]
    process: Annotated[int | None, about("The number of that process.", 4711)] = None
    author: Annotated[str | None, about("The commit's author.", "admin")] = None
    comment: Annotated[str | None, about("The commit's comment.", "faster for everybody")] = None
    before: Annotated[dict[str, Any] | None, about("What was, secrets masked, cut when it is long.")] = None
    after: Annotated[dict[str, Any] | None, about("What is now, likewise.")] = None


class ChangesReply(Record, frozen=True):
    log: Annotated[str, about("Name of this core's log.", "84a7e8343baf37f9")]
    oldest: Annotated[int, about("The oldest change that is held; at least 4096 are.", 1)]
    newest: Annotated[int, about("The newest change that is held.", 57)]
    changes: Annotated[tuple[ChangeRecord, ...], about("The oldest first, at most 100.")]


class ListChanges(Method[ChangesReply], frozen=True):
    """List the changes by the core itself and by clients other than the API. With log and after_sequence,
    list only the changes after that sequence number, unless the core has another log. A change is on disk
    before a reply contains it, and survives a restart of the core. Fails with StepFailed if the disk cannot
    be read."""

    log: Annotated[str | None, about("Log of after_sequence.", "84a7e8343baf37f9")] = None
    after_sequence: Annotated[Annotated[int, Meta(ge=0)] | None, about("Changes after this one.", 57)] = None


RequestIds = Annotated[
    tuple[str, ...], about("request_id of the calls.", ("8d1f0c7be45a4c3d9a6e21b0f3c58e77",))
]


class ResolveCallsReply(Record, frozen=True):
    """The outcomes of calls. A call that is in none of the lists is still running."""

    done: Annotated[RequestIds, about("Calls that changed something, or had nothing to change.")]
    failed: Annotated[RequestIds, about("Calls that got an error.")]
    unknown: Annotated[RequestIds, about("Other calls.")]


class ResolveCalls(Method[ResolveCallsReply], frozen=True):
    """Return the outcomes of calls whose replies the caller has lost. An unknown call has changed no
    configuration and never will: the core refuses the call if it arrives later. If the core was restarted
    meanwhile, an unknown call may have changed sessions. The last 4096 completed calls are on disk."""

    request_ids: Annotated[RequestIds, Meta(max_length=100)] = ()


# The archive


class ArchivedRevision(Record, frozen=True):
    """Information about the commit of an archived configuration."""

    revision: Revision
    committed_at: CommittedAt
    author: Author
    comment: Comment


class RunningCommit(Record, frozen=True):
    """Information about the commit of the running configuration."""

    committed_at: CommittedAt
    author: Author
    comment: Comment


class ArchiveReply(Record, frozen=True):
    """The archived configurations."""

    revisions: Annotated[tuple[ArchivedRevision, ...], about("The newest first.")]
    count: Annotated[int, count("Number of archived revisions in this reply.", 1)]
    running: Annotated[
        RunningCommit | None,
        about(
            "The commit of the running configuration.",
            {"committed_at": 1795271513, "author": "admin", "comment": "faster for everybody"},
        ),
    ] = None


class ListArchive(Method[ArchiveReply], frozen=True):
    """List the archived configurations, newest first, with the commit of the running configuration."""


class ArchivedRevisionReply(ArchivedRevision, frozen=True):
    configuration: Document


class GetArchivedRevision(Method[ArchivedRevisionReply], frozen=True):
    """Return an archived configuration, with masked secrets."""

    revision: Revision


# Users


Username = Annotated[str, about("Login.", "admin")]


class ApiUser(Record, frozen=True):
    """A user of the API. A token is valid as long as its user has the same generation as at the login."""

    username: Username
    role: Annotated[Role, about("What the user may do.", "admin")]
    generation: Annotated[
        str,
        Meta(min_length=1),
        about(
            "Changes to a value that the user never had, with each change of the password or the role, when "
            "the user is deleted and created again, and with EndTokens. Nothing else changes it, not even a "
            "restart.",
            "1",
        ),
    ]


SettingsVersion = Annotated[
    int | None,
    about(
        "The modification time of the core's socket, in nanoseconds, as long as this reply holds. "
        "Null if it holds for one request."
    ),
]


class AccessReply(Record, frozen=True):
    enabled: Annotated[bool, about("Whether the API serves requests.", True)]
    users: Annotated[tuple[ApiUser, ...], about("The users among these names.")]
    version: SettingsVersion = None

    def user(self, username: str) -> ApiUser | None:
        """Return the user with this name, or None if there is no such user."""
        return next((user for user in self.users if user.username == username), None)


class CheckAccess(Method[AccessReply], frozen=True):
    """Return whether the API is enabled, and the users with these names. If the core has versions, the API
    makes this call once for each version; otherwise, before every request. So a commit takes effect on the
    next request. A core with versions sets the modification time of its socket to another version before a
    change of the reply takes effect."""

    at_once = True

    usernames: Annotated[tuple[str, ...], about("Possible names of users.", ["admin"])]


class LoginReply(Record, frozen=True):
    token_lifetime: Annotated[int, about("Lifetime of tokens, seconds.", 3600)]
    user: Annotated[ApiUser | None, about("Null when there is no user of that name.")] = None
    password_hash: Annotated[str | None, about("bcrypt hash of the user's password.")] = None
    highest_cost: Annotated[
        Annotated[int, Meta(ge=4, le=31)] | None,
        about(
            "The highest bcrypt cost of all password hashes. Every check takes that long, so its duration "
            "does not tell whether a user exists. Null without users.",
            12,
        ),
    ] = None


class GetLogin(Method[LoginReply], frozen=True):
    """Return the data that the API needs to check a user's password. No other method returns a password
    hash."""

    username: Username


class EndTokens(Command[Nothing], frozen=True):
    """End all tokens of a user of the API: the user gets a new generation. When the reply arrives, a power
    cut does not undo the change."""

    username: Username


# Settings of the API itself


class Receiver(Record, frozen=True):
    """A receiver of webhooks. Each receiver has a different URL."""

    url: Annotated[str, about("Receiver of the events.", "https://noc.example/hook")]
    events: Annotated[tuple[str, ...], about("Names of events.", ["session.up"])]
    secret: Annotated[str | None, about("Signs what is sent: base64 of 24 to 64 bytes; null for none.")] = (
        None
    )


class HistoryLimits(Record, frozen=True):
    """The limits of the session history that the API keeps."""

    days: Annotated[int, about("Days after its end that a session is kept.", 90, minimum=1)]
    mebibytes: Annotated[int, about("Size of the history; the oldest sessions go first.", 1024, minimum=16)]


class ApiSettings(Record, frozen=True, kw_only=True):
    """The settings of the API in the running configuration."""

    enabled: Annotated[bool, about("Whether the API serves requests.", True)]
    auth_token: Annotated[
        Annotated[str, Meta(min_length=16)] | None,
        about(
            "Token of the alternative profile, 16 printable ASCII characters or more; the profile is off "
            "without one."
        ),
    ] = None
    listen_address: Annotated[str, about("Address at which the alternative profile listens.", "127.0.0.1")]
    listen_port: Annotated[
        int, Meta(ge=1, le=65535), about("Port at which the alternative profile listens.", 8080)
    ]
    denied_networks: Annotated[
        tuple[str, ...],
        about("Networks in CIDR to which no webhook is delivered, besides those always denied."),
    ]
    receivers: Annotated[tuple[Receiver, ...], about("The receivers of webhooks that always exist.")]
    history: Annotated[HistoryLimits, about("Limits of the history of sessions.")]
    audit_forward: Annotated[
        str | None,
        about(
            "Receiver of the audit log: journal, or tls://HOST:PORT; null for none.",
            "tls://logs.example:6514",
        ),
    ] = None
    version: SettingsVersion = None


class GetApiSettings(Method[ApiSettings], frozen=True):
    """Return the settings of the API in the running configuration, including secrets. A call with the flag
    `more` returns the present settings, then all settings again after each commit, with a reply at least
    every 15 seconds. In its alternative profile, the API also makes this call once for each version, or
    before every request if the core has no versions, like CheckAccess."""

    streams = True
    replies_once = True
    at_once = True


# Errors


class ConfigurationProblem(Record, frozen=True):
    """A rule that a value breaks."""

    path: Annotated[str, about("Place in the configuration, dotted.", "qos.default_down")]
    code: Annotated[ProblemCode, about("Kind of the problem.", "invalid")]
    message: Annotated[str, about("The rule, for people.", "must be a number and a unit, such as 50mbit")]


EditNumber = Annotated[int, about("Number of the edit, from 0 on.", 0)]
Problems = Annotated[tuple[ConfigurationProblem, ...], about("The rules that the values break.")]


class EditRefusedError(Failure, frozen=True):
    """Refusal of edits: one of the edits is invalid. No edit was made."""

    edit: EditNumber
    problems: Problems


class PathNotFoundError(Failure, frozen=True):
    """Refusal of edits: one of the edits deletes a value that does not exist. No edit was made."""

    edit: EditNumber
    path: Annotated[str, about("The path of that edit.", "bgp.neighbors.0")]


class ConfigurationInvalidError(Failure, frozen=True):
    """Refusal of a commit: the candidate as a whole is not valid."""

    problems: Problems


class ConfigurationChangedError(Failure, frozen=True):
    """Refusal of a change: the etag of the present configuration is not in `if_match`."""

    etag: Etag


class RevisionNotFoundError(Failure, frozen=True):
    """Error about a revision: the archive has no configuration with that number."""

    revision: Revision


class UserNotFoundError(Failure, frozen=True):
    """Error about a user: the running configuration has no user of the API with that name."""


class CandidateStagedError(Failure, frozen=True):
    """Refusal of a change: other changes are staged, and must be committed or discarded first."""


class NothingToConfirmError(Failure, frozen=True):
    """Refusal of a confirmation: no commit waits for a confirmation."""


class StepFailedError(Failure, frozen=True):
    """Failure of a change: one of its steps failed. Nothing was changed."""

    step: Annotated[str, about("A verb and an object.", "write the configuration")]
    reason: Annotated[str, about("Why, without secrets.", "No space left on device")]
