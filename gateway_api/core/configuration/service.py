"""The interface file's methods on the configuration, answered from a workspace."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from gateway_api.core.configuration.deadline import LONGEST_CONFIRMATION
from gateway_api.core.configuration.diff import diff_text
from gateway_api.core.configuration.documents import Unreadable
from gateway_api.core.configuration.edit import Operation, Refused
from gateway_api.core.configuration.outcome import NoSuchUser, NothingToConfirm, Outcome, Staged, Stale
from gateway_api.core.configuration.records import (
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
    DiscardCandidateCall,
    EditCandidateCall,
    EndTokensCall,
    ReplaceConfigurationCall,
    RollbackCandidateCall,
    TokenAccess,
)
from gateway_api.core.configuration.steps import StepFailed
from gateway_api.core.configuration.workspace import Workspace
from gateway_api.errors import Invalid, NotFound, Problem
from gateway_api.redact import redacted
from gateway_api.varlink.dispatcher import Method, NoParameters, invalid_parameter
from gateway_api.varlink.message import ErrorReply

_log = logging.getLogger(__name__)

_LONGEST_TEXT = 256


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
            "EndTokens": Method(EndTokensCall, self.end_tokens),
            "GetTokenAccess": Method(NoParameters, self.get_token_access),
            "GetCandidate": Method(NoParameters, self.get_candidate),
            "EditCandidate": Method(EditCandidateCall, self.edit_candidate),
            "DiscardCandidate": Method(DiscardCandidateCall, self.discard_candidate),
            "RollbackCandidate": Method(RollbackCandidateCall, self.rollback_candidate),
            "CompareConfiguration": Method(CompareConfigurationCall, self.compare_configuration),
            "CommitCandidate": Method(CommitCandidateCall, self.commit_candidate),
            "ReplaceConfiguration": Method(ReplaceConfigurationCall, self.replace_configuration),
            "ConfirmCommit": Method(NoParameters, self.confirm_commit),
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

    def end_tokens(self, call: EndTokensCall) -> dict[str, Any]:
        with self._errors():
            self._workspace.end_tokens(call.username)
        return {}

    def get_token_access(self, _: NoParameters) -> TokenAccess:
        api = self._workspace.view.running.sections.api
        return TokenAccess(api.enabled, api.auth_token, str(api.listen_address), api.listen_port)

    def get_candidate(self, _: NoParameters) -> ConfigurationReply:
        view = self._workspace.view
        return ConfigurationReply(redacted(view.candidate), view.etag)

    def edit_candidate(self, call: EditCandidateCall) -> dict[str, Any]:
        operations = [_operation(number, edit) for number, edit in enumerate(call.edits)]
        with self._errors():
            return {"etag": self._workspace.edit(operations, call.if_match)}

    def discard_candidate(self, call: DiscardCandidateCall) -> dict[str, Any]:
        with self._errors():
            return {"etag": self._workspace.discard(call.if_match)}

    def rollback_candidate(self, call: RollbackCandidateCall) -> dict[str, Any]:
        with self._errors(revision=call.revision):
            changes, etag = self._workspace.rollback(call.revision, call.if_match)
        return {"changes": changes, "etag": etag}

    def compare_configuration(self, call: CompareConfigurationCall) -> dict[str, Any]:
        with self._errors(revision=call.revision):
            changes, etag = self._workspace.compare(call.revision)
        deadline = self._workspace.confirm_deadline()
        return {"diff": diff_text(changes), "etag": etag, "confirm_deadline": deadline}

    def commit_candidate(self, call: CommitCandidateCall) -> CommitReply:
        seconds = call.confirm_seconds
        if seconds is not None and not 1 <= seconds <= LONGEST_CONFIRMATION:
            raise invalid_parameter("confirm_seconds")
        _refuse_more_than_a_line(call)
        with self._errors():
            return _reply(self._workspace.commit(call.author, call.comment, seconds, call.if_match))

    def replace_configuration(self, call: ReplaceConfigurationCall) -> CommitReply:
        _refuse_more_than_a_line(call)
        with self._errors():
            outcome = self._workspace.replace_running(
                call.configuration, call.author, call.comment, call.if_match
            )
        return _reply(outcome)

    def confirm_commit(self, _: NoParameters) -> dict[str, Any]:
        with self._errors():
            self._workspace.confirm()
        return {}

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


def _refuse_more_than_a_line(call: CommitCandidateCall | ReplaceConfigurationCall) -> None:
    for name, text in (("author", call.author), ("comment", call.comment or "")):
        if len(text) > _LONGEST_TEXT or not text.isprintable():
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
