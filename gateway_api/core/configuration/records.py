"""The types of the interface file that are about the configuration, as structs."""

from typing import Any, Literal

from gateway_api.wire.core import Parameters, Record


class ApiUser(Record, frozen=True):
    username: str
    password_hash: str
    role: str
    generation: str


class EndTokensCall(Parameters, frozen=True):
    username: str
    request_id: str | None = None


class ConfigurationReply(Record, frozen=True):
    configuration: dict[str, Any]
    etag: str


class ConfigurationEdit(Parameters, frozen=True):
    action: Literal["set", "delete"]
    path: str
    value_json: str | None = None


class ConfigurationProblem(Record, frozen=True):
    path: str
    code: str
    message: str


class ArchivedRevision(Record, frozen=True):
    revision: int
    committed_at: int
    author: str
    comment: str | None


class EditCandidateCall(Parameters, frozen=True):
    edits: tuple[ConfigurationEdit, ...]
    if_match: tuple[str, ...] | None = None
    request_id: str | None = None


class DiscardCandidateCall(Parameters, frozen=True):
    if_match: tuple[str, ...] | None = None
    request_id: str | None = None


class RollbackCandidateCall(Parameters, frozen=True):
    revision: int
    if_match: tuple[str, ...] | None = None
    request_id: str | None = None


class CompareConfigurationCall(Parameters, frozen=True):
    revision: int | None = None


class CommitCandidateCall(Parameters, frozen=True):
    author: str
    comment: str | None = None
    confirm_seconds: int | None = None
    if_match: tuple[str, ...] | None = None
    request_id: str | None = None


class ReplaceConfigurationCall(Parameters, frozen=True):
    configuration: dict[str, Any]
    author: str
    comment: str | None = None
    if_match: tuple[str, ...] | None = None
    request_id: str | None = None


class ConfirmCommitCall(Parameters, frozen=True):
    request_id: str | None = None


class AmendConfigurationCall(Parameters, frozen=True):
    edits: tuple[ConfigurationEdit, ...]
    author: str
    comment: str | None = None
    action: str | None = None
    if_match: tuple[str, ...] | None = None


class RestoreRevisionCall(Parameters, frozen=True):
    revision: int
    author: str
    comment: str | None = None
    action: str | None = None


class CommitReply(Record, frozen=True):
    committed: bool
    changes: int
    archived_revision: int | None
    author: str
    comment: str | None
    committed_at: int
    confirm_deadline: int | None
    etag: str


class ArchivedRevisionCall(Parameters, frozen=True):
    revision: int


class ApiAccess(Record, frozen=True):
    enabled: bool
    token_lifetime: int
    users: tuple[ApiUser, ...]
    denied_networks: tuple[str, ...]


class TokenAccess(Record, frozen=True):
    enabled: bool
    auth_token: str | None
    listen_address: str
    listen_port: int
