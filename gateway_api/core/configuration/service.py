"""The interface file's methods on the configuration, answered from a workspace."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from gateway_api.base.errors import Invalid, NotFound, Problem
from gateway_api.base.fields import is_line
from gateway_api.base.redact import redacted
from gateway_api.core.changes import Caller
from gateway_api.core.configuration.edit import Operation, Refused
from gateway_api.core.configuration.outcome import (
    ConfigurationDifference,
    NoSuchUser,
    NothingToConfirm,
    Outcome,
    Staged,
    Stale,
    StepFailed,
    Unreadable,
)
from gateway_api.core.configuration.records import (
    AmendConfigurationCall,
    ApiAccess,
    ApiUser,
    ArchivedRevision,
    ArchivedRevisionCall,
    CommitCandidateCall,
    CommitReply,
    CompareConfigurationCall,
    ConfigurationEdit,
    ConfigurationProblem,
    ConfigurationReply,
    ConfirmCommitCall,
    DiscardCandidateCall,
    EditCandidateCall,
    EndTokensCall,
    ReplaceConfigurationCall,
    RestoreRevisionCall,
    RollbackCandidateCall,
    TokenAccess,
)
from gateway_api.core.configuration.state import LONGEST_CONFIRMATION
from gateway_api.core.configuration.workspace import Workspace
from gateway_api.wire.core import Parameters
from gateway_api.wire.varlink.dispatcher import Method, NoParameters, invalid_parameter
from gateway_api.wire.varlink.message import ErrorReply
from gateway_api.wire.varlink.peer import Peer

_log = logging.getLogger(__name__)

_LONGEST_TEXT = 256
_ACTION = re.compile(r"[a-z_]{1,32}\.[a-z_]{1,32}", re.ASCII)


class _FromTheApi(Protocol):
    """A call that the API makes, with the id of the request that it makes it for."""

    @property
    def request_id(self) -> str | None: ...


class ConfigurationService:
    """Serves one workspace. `interface` is the interface's name, for its errors."""

    def __init__(self, workspace: Workspace, interface: str) -> None:
        self._workspace = workspace
        self._interface = interface

    def methods(self) -> dict[str, Method]:
        """A handler for each of them."""
        return {
            "GetConfiguration": Method(NoParameters, self.get_configuration),
            "GetApiAccess": Method(NoParameters, self.get_api_access),
            "EndTokens": _change(EndTokensCall, self.end_tokens),
            "GetTokenAccess": Method(NoParameters, self.get_token_access),
            "GetCandidate": Method(NoParameters, self.get_candidate),
            "EditCandidate": _change(EditCandidateCall, self.edit_candidate),
            "DiscardCandidate": _change(DiscardCandidateCall, self.discard_candidate),
            "RollbackCandidate": _change(RollbackCandidateCall, self.rollback_candidate),
            "CompareConfiguration": Method(CompareConfigurationCall, self.compare_configuration),
            "CommitCandidate": _change(CommitCandidateCall, self.commit_candidate),
            "ReplaceConfiguration": _change(ReplaceConfigurationCall, self.replace_configuration),
            "ConfirmCommit": _change(ConfirmCommitCall, self.confirm_commit),
            "AmendConfiguration": _change(AmendConfigurationCall, self.amend_configuration),
            "RestoreRevision": _change(RestoreRevisionCall, self.restore_revision),
            "ListArchive": Method(NoParameters, self.list_archive),
            "GetArchivedRevision": Method(ArchivedRevisionCall, self.get_archived_revision),
        }

    def get_configuration(self, _: NoParameters) -> ConfigurationReply:
        view = self._workspace.view
        return ConfigurationReply(redacted(view.running.document), view.etag)

    def get_api_access(self, _: NoParameters) -> ApiAccess:
        view = self._workspace.view
        api, generations = view.running.sections.api, view.state.generations or {}
        users = (ApiUser(u.username, u.password_hash, u.role, generations[u.username]) for u in api.users)
        denied = map(str, api.webhooks.denied_networks)
        return ApiAccess(api.enabled, api.token_lifetime, tuple(users), tuple(denied))

    def end_tokens(self, call: EndTokensCall, peer: Peer | None) -> dict[str, Any]:
        with self._errors():
            self._workspace.end_tokens(call.username, _caller("end_tokens", call, peer))
        return {}

    def get_token_access(self, _: NoParameters) -> TokenAccess:
        api = self._workspace.view.running.sections.api
        return TokenAccess(api.enabled, api.auth_token, str(api.listen_address), api.listen_port)

    def get_candidate(self, _: NoParameters) -> ConfigurationReply:
        view = self._workspace.view
        return ConfigurationReply(redacted(view.candidate), view.etag)

    def edit_candidate(self, call: EditCandidateCall, peer: Peer | None) -> dict[str, Any]:
        operations = [_operation(number, edit) for number, edit in enumerate(call.edits)]
        with self._errors():
            _, etag = self._workspace.edit(operations, call.if_match, _caller("edit_all", call, peer))
        return {"etag": etag}

    def discard_candidate(self, call: DiscardCandidateCall, peer: Peer | None) -> dict[str, Any]:
        with self._errors():
            _, etag = self._workspace.discard(call.if_match, _caller("discard", call, peer))
        return {"etag": etag}

    def rollback_candidate(self, call: RollbackCandidateCall, peer: Peer | None) -> dict[str, Any]:
        with self._errors(revision=call.revision):
            caller = _caller("rollback", call, peer)
            _, changes, etag = self._workspace.rollback(call.revision, call.if_match, caller)
        return {"changes": changes, "etag": etag}

    def compare_configuration(self, call: CompareConfigurationCall) -> ConfigurationDifference:
        with self._errors(revision=call.revision):
            return self._workspace.compare(call.revision)

    def commit_candidate(self, call: CommitCandidateCall, peer: Peer | None) -> CommitReply:
        seconds = call.confirm_seconds
        if seconds is not None and not 1 <= seconds <= LONGEST_CONFIRMATION:
            raise invalid_parameter("confirm_seconds")
        _refuse_more_than_a_line(call)
        caller = _caller("commit", call, peer)
        with self._errors():
            return _reply(self._workspace.commit(call.author, call.comment, seconds, call.if_match, caller))

    def replace_configuration(self, call: ReplaceConfigurationCall, peer: Peer | None) -> CommitReply:
        _refuse_more_than_a_line(call)
        with self._errors():
            outcome = self._workspace.replace_running(
                call.configuration,
                call.author,
                call.comment,
                call.if_match,
                _caller("replace", call, peer),
            )
        return _reply(outcome)

    def confirm_commit(self, call: ConfirmCommitCall, peer: Peer | None) -> dict[str, Any]:
        with self._errors():
            self._workspace.confirm(_caller("confirm", call, peer))
        return {}

    def amend_configuration(self, call: AmendConfigurationCall, peer: Peer | None) -> CommitReply:
        _refuse_more_than_a_line(call)
        operations = [_operation(number, edit) for number, edit in enumerate(call.edits)]
        caller = _named_caller("amend", call.action, peer)
        with self._errors():
            return _reply(self._workspace.amend(operations, call.author, call.comment, call.if_match, caller))

    def restore_revision(self, call: RestoreRevisionCall, peer: Peer | None) -> CommitReply:
        _refuse_more_than_a_line(call)
        caller = _named_caller("restore", call.action, peer)
        with self._errors(revision=call.revision):
            return _reply(self._workspace.restore(call.revision, call.author, call.comment, caller))

    def list_archive(self, _: NoParameters) -> dict[str, Any]:
        commits = enumerate(self._workspace.archive(), 1)
        revisions = [ArchivedRevision(n, c.committed_at, c.author, c.comment) for n, c in commits]
        return {"revisions": revisions, "count": len(revisions)}

    def get_archived_revision(self, call: ArchivedRevisionCall) -> dict[str, Any]:
        with self._errors(revision=call.revision):
            commit, document = self._workspace.archived(call.revision)
        return {
            "revision": call.revision,
            **msgspec.structs.asdict(commit),
            "configuration": redacted(document),
        }

    @contextmanager
    def _errors(self, revision: int | None = None) -> Iterator[None]:
        """The workspace's errors as those of the interface."""
        try:
            yield
        except Refused as error:
            if isinstance(error.reason, Invalid):
                problems = _problems(error.reason.problems)
                raise self._error("EditRefused", edit=error.number, problems=problems) from error
            raise self._error("PathNotFound", edit=error.number, path=error.path) from error
        except Invalid as error:
            raise self._error("ConfigurationInvalid", problems=_problems(error.problems)) from error
        except NotFound as error:
            raise self._error("RevisionNotFound", revision=revision) from error
        except Stale as error:
            raise self._error("ConfigurationChanged", etag=error.etag) from error
        except NoSuchUser as error:
            raise self._error("UserNotFound") from error
        except NothingToConfirm as error:
            raise self._error("NothingToConfirm") from error
        except Staged as error:
            raise self._error("CandidateStaged") from error
        except StepFailed as error:
            _log.error("the configuration stays as it was: %s", error)
            raise self._error("StepFailed", step=error.name, reason=error.reason) from error
        except Unreadable as error:
            _log.error("a revision is lost: %s", error)
            reason = "the core's log says why"
            raise self._error("StepFailed", step="read an archived revision", reason=reason) from error

    def _error(self, name: str, **parameters: Any) -> ErrorReply:
        return ErrorReply.of(f"{self._interface}.{name}", **parameters)


def _change(parameters: type[Parameters], handler: Callable[..., Any]) -> Method:
    return Method(parameters, handler, knows_peer=True)


def _caller(verb: str, call: _FromTheApi, peer: Peer | None) -> Caller | None:
    """Nobody to note for a change that the API makes: it records that itself."""
    return None if call.request_id is not None else Caller(f"configuration.{verb}", peer)


def _named_caller(verb: str, action: str | None, peer: Peer | None) -> Caller:
    if action is not None and not _ACTION.fullmatch(action):
        raise invalid_parameter("action")
    return Caller(action or f"configuration.{verb}", peer)


def _operation(number: int, edit: ConfigurationEdit) -> Operation:
    value = None
    if edit.value_json is not None:
        try:
            value = msgspec.json.decode(edit.value_json)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise invalid_parameter(f"edits.{number}.value_json") from error
    elif edit.action == "set":
        raise invalid_parameter(f"edits.{number}.value_json")
    return Operation(edit.action, edit.path, value)


def _problems(problems: Iterable[Problem]) -> list[ConfigurationProblem]:
    return [ConfigurationProblem(p.path, p.code, p.message) for p in problems]


def _refuse_more_than_a_line(
    call: CommitCandidateCall | ReplaceConfigurationCall | AmendConfigurationCall | RestoreRevisionCall,
) -> None:
    for name, text in (("author", call.author), ("comment", call.comment or "")):
        if len(text) > _LONGEST_TEXT or not is_line(text):
            raise invalid_parameter(name)


def _reply(outcome: Outcome) -> CommitReply:
    return CommitReply(
        committed=outcome.changes > 0,
        changes=outcome.changes,
        archived_revision=1 if outcome.changes else None,
        author=outcome.commit.author,
        comment=outcome.commit.comment,
        committed_at=outcome.commit.committed_at,
        confirm_deadline=outcome.deadline,
        etag=outcome.etag,
    )
