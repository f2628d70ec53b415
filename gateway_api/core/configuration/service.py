"""The methods of the core's interface on the configuration, for a workspace."""

import logging
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from gateway_api.base.errors import Invalid, NotFound, Problem
from gateway_api.base.fields import is_line
from gateway_api.base.logs import redacted
from gateway_api.core.changes import Caller
from gateway_api.core.configuration.edit import Operation, Refused
from gateway_api.core.configuration.outcome import (
    NoSuchUser,
    NothingToConfirm,
    Outcome,
    Staged,
    Stale,
    StepFailed,
    Unreadable,
)
from gateway_api.core.configuration.running import View
from gateway_api.core.configuration.workspace import Workspace
from gateway_api.wire.contract import Method
from gateway_api.wire.core import configuration as wire
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.varlink.dispatcher import invalid_parameter
from gateway_api.wire.varlink.protocol import Peer

_log = logging.getLogger(__name__)

_LONGEST_TEXT = 256
_ACTION = re.compile(r"[a-z_]{1,32}\.[a-z_]{1,32}", re.ASCII)


class _FromTheApi(Protocol):
    """A call of the API has the id of the request that caused it."""

    @property
    def request_id(self) -> str | None: ...


class ConfigurationService:
    """Serves one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def get_configuration(self, _: Method[Any]) -> wire.ConfigurationReply:
        view = self._workspace.view
        return wire.ConfigurationReply(redacted(view.running.document), view.etag)

    def check_access(self, call: wire.CheckAccess) -> wire.AccessReply:
        view = self._workspace.view
        users = _users(view, call.usernames)
        return wire.AccessReply(view.running.sections.api.enabled, tuple(user for user, _ in users))

    def get_login(self, call: wire.GetLogin) -> wire.LoginReply:
        view = self._workspace.view
        api = view.running.sections.api
        highest = max((int(user.password_hash[4:6]) for user in api.users), default=None)
        for user, password_hash in _users(view, [call.username]):
            return wire.LoginReply(api.token_lifetime, user, password_hash, highest)
        return wire.LoginReply(api.token_lifetime, highest_cost=highest)

    def get_denied_networks(self, _: Method[Any]) -> wire.DeniedNetworksReply:
        webhooks = self._workspace.view.running.sections.api.webhooks
        return wire.DeniedNetworksReply(tuple(map(str, webhooks.denied_networks)))

    def end_tokens(self, call: wire.EndTokens, peer: Peer | None) -> dict[str, Any]:
        with self._errors():
            self._workspace.end_tokens(call.username, _caller("end_tokens", call, peer))
        return {}

    def get_token_access(self, _: Method[Any]) -> wire.TokenAccess:
        api = self._workspace.view.running.sections.api
        return wire.TokenAccess(
            enabled=api.enabled,
            auth_token=api.auth_token,
            listen_address=str(api.listen_address),
            listen_port=api.listen_port,
        )

    def get_candidate(self, _: Method[Any]) -> wire.ConfigurationReply:
        view = self._workspace.view
        return wire.ConfigurationReply(redacted(view.candidate), view.etag)

    def edit_candidate(self, call: wire.EditCandidate, peer: Peer | None) -> wire.EditReply:
        operations = [_operation(number, edit) for number, edit in enumerate(call.edits)]
        with self._errors():
            values, etag = self._workspace.edit(operations, call.if_match, _caller("edit_all", call, peer))
        return wire.EditReply(etag, tuple(values))

    def discard_candidate(self, call: wire.DiscardCandidate, peer: Peer | None) -> wire.DiscardReply:
        with self._errors():
            before, etag = self._workspace.discard(call.if_match, _caller("discard", call, peer))
        return wire.DiscardReply(etag, before)

    def rollback_candidate(self, call: wire.RollbackCandidate, peer: Peer | None) -> wire.RollbackReply:
        with self._errors(revision=call.revision):
            caller = _caller("rollback", call, peer)
            before, changes, etag = self._workspace.rollback(call.revision, call.if_match, caller)
        return wire.RollbackReply(changes, etag, before)

    def compare_configuration(self, call: wire.CompareConfiguration) -> wire.ConfigurationDifference:
        with self._errors(revision=call.revision):
            return self._workspace.compare(call.revision)

    def commit_candidate(self, call: wire.CommitCandidate, peer: Peer | None) -> wire.CommitReply:
        _refuse_more_than_a_line(call)
        caller = _caller("commit", call, peer)
        with self._errors():
            outcome = self._workspace.commit(
                call.author, call.comment, call.confirm_seconds, call.if_match, caller
            )
        return _reply(outcome)

    def replace_configuration(self, call: wire.ReplaceConfiguration, peer: Peer | None) -> wire.CommitReply:
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

    def confirm_commit(self, call: wire.ConfirmCommit, peer: Peer | None) -> dict[str, Any]:
        with self._errors():
            self._workspace.confirm(_caller("confirm", call, peer))
        return {}

    def amend_configuration(self, call: wire.AmendConfiguration, peer: Peer | None) -> wire.CommitReply:
        _refuse_more_than_a_line(call)
        operations = [_operation(number, edit) for number, edit in enumerate(call.edits)]
        caller = _named_caller("amend", call.action, peer)
        with self._errors():
            return _reply(self._workspace.amend(operations, call.author, call.comment, call.if_match, caller))

    def restore_revision(self, call: wire.RestoreRevision, peer: Peer | None) -> wire.CommitReply:
        _refuse_more_than_a_line(call)
        caller = _named_caller("restore", call.action, peer)
        with self._errors(revision=call.revision):
            return _reply(self._workspace.restore(call.revision, call.author, call.comment, caller))

    def list_archive(self, _: Method[Any]) -> dict[str, Any]:
        commits = enumerate(self._workspace.archive(), 1)
        revisions = [wire.ArchivedRevision(n, c.committed_at, c.author, c.comment) for n, c in commits]
        return {"revisions": revisions, "count": len(revisions)}

    def get_archived_revision(self, call: wire.GetArchivedRevision) -> dict[str, Any]:
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
                raise CORE.error(wire.EditRefusedError(error.number, problems)) from error
            raise CORE.error(wire.PathNotFoundError(error.number, error.path)) from error
        except Invalid as error:
            raise CORE.error(wire.ConfigurationInvalidError(_problems(error.problems))) from error
        except NotFound as error:
            raise CORE.error(wire.RevisionNotFoundError(revision or 0)) from error
        except Stale as error:
            raise CORE.error(wire.ConfigurationChangedError(error.etag)) from error
        except NoSuchUser as error:
            raise CORE.error(wire.UserNotFoundError()) from error
        except NothingToConfirm as error:
            raise CORE.error(wire.NothingToConfirmError()) from error
        except Staged as error:
            raise CORE.error(wire.CandidateStagedError()) from error
        except StepFailed as error:
            _log.error("the configuration stays as it was: %s", error)
            raise CORE.error(wire.StepFailedError(error.name, error.reason)) from error
        except Unreadable as error:
            _log.error("a revision is lost: %s", error)
            reason = "the core's log says why"
            raise CORE.error(wire.StepFailedError("read an archived revision", reason)) from error


def _caller(verb: str, call: _FromTheApi, peer: Peer | None) -> Caller | None:
    """None for a call of the API, which records the change itself."""
    return None if call.request_id is not None else Caller(f"configuration.{verb}", peer)


def _named_caller(verb: str, action: str | None, peer: Peer | None) -> Caller:
    if action is not None and not _ACTION.fullmatch(action):
        raise invalid_parameter("action")
    return Caller(action or f"configuration.{verb}", peer)


def _users(view: View, usernames: Collection[str]) -> list[tuple[wire.ApiUser, str]]:
    """Those of the names that are users, each with its password hash."""
    generations = view.state.generations or {}
    return [
        (wire.ApiUser(user.username, wire.Role(user.role), generations[user.username]), user.password_hash)
        for user in view.running.sections.api.users
        if user.username in usernames
    ]


def _operation(number: int, edit: wire.ConfigurationEdit) -> Operation:
    value = None
    if edit.value_json is not None:
        try:
            value = msgspec.json.decode(edit.value_json)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise invalid_parameter(f"edits.{number}.value_json") from error
    elif edit.action == "set":
        raise invalid_parameter(f"edits.{number}.value_json")
    return Operation(edit.action, edit.path, value)


def _problems(problems: Iterable[Problem]) -> tuple[wire.ConfigurationProblem, ...]:
    return tuple(wire.ConfigurationProblem(p.path, wire.ProblemCode(p.code), p.message) for p in problems)


def _refuse_more_than_a_line(
    call: wire.CommitCandidate | wire.ReplaceConfiguration | wire.AmendConfiguration | wire.RestoreRevision,
) -> None:
    for name, text in (("author", call.author), ("comment", call.comment or "")):
        if len(text) > _LONGEST_TEXT or not is_line(text):
            raise invalid_parameter(name)


def _reply(outcome: Outcome) -> wire.CommitReply:
    return wire.CommitReply(
        committed=outcome.changes > 0,
        changes=outcome.changes,
        archived_revision=1 if outcome.changes else None,
        author=outcome.commit.author,
        comment=outcome.commit.comment,
        committed_at=outcome.commit.committed_at,
        confirm_deadline=outcome.deadline,
        etag=outcome.etag,
        before=outcome.before,
    )
