"""The methods of the core's interface on the configuration, for a workspace."""

import logging
import re
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from gateway_contract.base.errors import Invalid, NotFound, Problem, Stale, StepFailed
from gateway_contract.base.fields import is_line
from gateway_contract.base.texts import format_path
from gateway_contract.configuration import Configuration, mask_secrets
from gateway_contract.contract import Method, Nothing
from gateway_contract.core import configuration as wire
from gateway_contract.core.interface import CORE
from gateway_contract.varlink.dispatcher import invalid_parameter
from gateway_contract.varlink.protocol import Peer
from gateway_core.configuration.documents import InvalidDocument
from gateway_core.configuration.edit import OperationRefused
from gateway_core.configuration.running import Snapshot
from gateway_core.configuration.store import Unreadable
from gateway_core.configuration.workspace import ChangeRequest, Workspace
from gateway_core.records.changes import Caller

_log = logging.getLogger(__name__)

#: Waits without a commit until the settings come nevertheless, and the seconds of one.
_WAITS, _WAIT = 15, 1.0
_ACTION = re.compile(r"[a-z_]{1,32}\.[a-z_]{1,32}", re.ASCII)


class ConfigurationService:
    """Serves one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._committed = threading.Condition()
        self._commits = 0
        workspace.follow(self._commit)

    def get_configuration(self, _: Method[Any]) -> wire.ConfigurationReply:
        snapshot = self._workspace.snapshot
        return wire.ConfigurationReply(mask_secrets(snapshot.running.document), snapshot.etag)

    def check_access(self, call: wire.CheckAccess) -> wire.AccessReply:
        snapshot = self._workspace.snapshot
        users = _users(snapshot, call.usernames)
        enabled = snapshot.running.sections.api.enabled
        return wire.AccessReply(enabled, tuple(user for user, _ in users), snapshot.version)

    def get_login(self, call: wire.GetLogin) -> wire.LoginReply:
        snapshot = self._workspace.snapshot
        api = snapshot.running.sections.api
        highest = max((int(user.password_hash[4:6]) for user in api.users), default=None)
        for user, password_hash in _users(snapshot, [call.username]):
            return wire.LoginReply(api.token_lifetime, user, password_hash, highest)
        return wire.LoginReply(api.token_lifetime, highest_cost=highest)

    def get_api_settings(self, _: Method[Any]) -> Iterator[wire.ApiSettings | None]:
        """None each second without a commit has the server look for clients that have left."""
        while True:
            commits = self._commits
            yield _settings(self._workspace.snapshot)
            for _wait in range(_WAITS):
                if self._has_changed(commits):
                    break
                yield None

    def end_tokens(self, call: wire.EndTokens, peer: Peer | None) -> Nothing:
        with self._errors():
            self._workspace.end_tokens(call.username, _request("end_tokens", call, peer))
        return Nothing()

    def get_candidate(self, _: Method[Any]) -> wire.ConfigurationReply:
        snapshot = self._workspace.snapshot
        return wire.ConfigurationReply(mask_secrets(snapshot.candidate), snapshot.etag)

    def edit_candidate(self, call: wire.EditCandidate, peer: Peer | None) -> wire.EditReply:
        with self._errors():
            return self._workspace.edit(_operations(call.edits), _request("edit_all", call, peer))

    def replace_candidate(self, call: wire.ReplaceCandidate, peer: Peer | None) -> wire.StagedReply:
        with self._errors():
            request = _request("replace_candidate", call, peer)
            return self._workspace.replace_candidate(call.configuration, request)

    def discard_candidate(self, call: wire.DiscardCandidate, peer: Peer | None) -> wire.DiscardReply:
        with self._errors():
            return self._workspace.discard(_request("discard", call, peer))

    def rollback_candidate(self, call: wire.RollbackCandidate, peer: Peer | None) -> wire.StagedReply:
        with self._errors(call.revision):
            return self._workspace.rollback(call.revision, _request("rollback", call, peer))

    def compare_configuration(self, call: wire.CompareConfiguration) -> wire.ComparisonReply:
        with self._errors(call.revision):
            return self._workspace.compare(call.revision, call.to_revision)

    def commit_candidate(self, call: wire.CommitCandidate, peer: Peer | None) -> wire.CommitReply:
        with self._errors():
            return self._workspace.commit(_request("commit", call, peer), call.confirm_seconds)

    def replace_configuration(self, call: wire.ReplaceConfiguration, peer: Peer | None) -> wire.CommitReply:
        with self._errors():
            return self._workspace.replace_running(call.configuration, _request("replace", call, peer))

    def confirm_commit(self, call: wire.ConfirmCommit, peer: Peer | None) -> Nothing:
        with self._errors():
            self._workspace.confirm(_request("confirm", call, peer))
        return Nothing()

    def amend_configuration(self, call: wire.AmendConfiguration, peer: Peer | None) -> wire.CommitReply:
        with self._errors():
            return self._workspace.amend(_operations(call.edits), _request("amend", call, peer))

    def restore_revision(self, call: wire.RestoreRevision, peer: Peer | None) -> wire.CommitReply:
        with self._errors(call.revision):
            return self._workspace.restore(call.revision, _request("restore", call, peer))

    def list_archive(self, _: Method[Any]) -> wire.ArchiveReply:
        running, *archived = self._workspace.snapshot.commits
        commits = enumerate(archived, 1)
        revisions = [wire.ArchivedRevision(n, c.committed_at, c.author, c.comment) for n, c in commits]
        last = wire.RunningCommit(running.committed_at, running.author, running.comment)
        return wire.ArchiveReply(tuple(revisions), len(revisions), last)

    def get_archived_revision(self, call: wire.GetArchivedRevision) -> wire.ArchivedRevisionReply:
        with self._errors(call.revision):
            commit, document = self._workspace.archived(call.revision)
        return wire.ArchivedRevisionReply(
            call.revision, commit.committed_at, commit.author, commit.comment, mask_secrets(document)
        )

    def _commit(self, _: Configuration) -> None:
        with self._committed:
            self._commits += 1
            self._committed.notify_all()

    def _has_changed(self, commits: int) -> bool:
        with self._committed:
            return self._committed.wait_for(lambda: self._commits > commits, _WAIT)

    @contextmanager
    def _errors(self, revision: int | None = None) -> Iterator[None]:
        """The workspace's errors as those of the interface."""
        try:
            yield
        except OperationRefused as error:
            if isinstance(error.reason, Invalid):
                problems = _problems(error.reason.problems)
                raise CORE.error(wire.EditRefusedError(error.number, problems)) from error
            raise CORE.error(wire.PathNotFoundError(error.number, format_path(error.reason.path))) from error
        except Invalid as error:
            found = error.problems_by_key if isinstance(error, InvalidDocument) else error.problems
            raise CORE.error(wire.ConfigurationInvalidError(_problems(found))) from error
        except NotFound as error:
            raise CORE.error(wire.RevisionNotFoundError(revision or 0)) from error
        except Stale as error:
            raise CORE.error(wire.ConfigurationChangedError(error.etag)) from error
        except StepFailed as error:
            _log.error("the configuration stays as it was: %s", error)
            raise CORE.error(wire.StepFailedError(error.step, error.reason)) from error
        except Unreadable as error:
            _log.error("a revision is lost: %s", error)
            reason = "the core's log says why"
            raise CORE.error(wire.StepFailedError("read an archived revision", reason)) from error


def _request(verb: str, call: Method[Any], peer: Peer | None) -> ChangeRequest:
    """Return the request of a call."""
    fields = msgspec.structs.asdict(call)
    author, comment, action = fields.get("author", ""), fields.get("comment"), fields.get("action")
    for name, text in (("author", author), ("comment", comment or "")):
        if len(text) > wire.LONGEST_COMMENT or not is_line(text):
            raise invalid_parameter(name)
    if action is not None and not _ACTION.fullmatch(action):
        raise invalid_parameter("action")
    caller = Caller(action or f"configuration.{verb}", peer, fields.get("request_id"))
    return ChangeRequest(author, comment, fields.get("if_match"), caller, fields.get("max_sessions_dropped"))


def _settings(snapshot: Snapshot) -> wire.ApiSettings:
    running = snapshot.running.sections
    api, history = running.api, running.history
    return wire.ApiSettings(
        enabled=api.enabled,
        auth_token=api.auth_token,
        listen_address=str(api.listen_address),
        listen_port=api.listen_port,
        denied_networks=tuple(map(str, api.webhooks.denied_networks)),
        receivers=tuple(wire.Receiver(one.url, one.events, one.secret) for one in api.webhooks.receivers),
        history=wire.HistoryLimits(history.days, history.mebibytes),
        version=snapshot.version,
    )


def _users(snapshot: Snapshot, usernames: Collection[str]) -> list[tuple[wire.ApiUser, str]]:
    """Return the users among the names, each with its password hash."""
    generations = snapshot.state.generations or {}
    return [
        (wire.ApiUser(user.username, wire.Role(user.role), generations[user.username]), user.password_hash)
        for user in snapshot.running.sections.api.users
        if user.username in usernames
    ]


def _operations(edits: Iterable[wire.ConfigurationEdit]) -> list[wire.Edit]:
    operations = []
    for number, edit in enumerate(edits):
        text = edit.value_json
        try:
            value = None if text is None else msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise invalid_parameter(f"edits.{number}.value_json") from error
        if text is None and edit.action == "set":
            raise invalid_parameter(f"edits.{number}.value_json")
        operations.append(wire.Edit(edit.action, edit.path, value))
    return operations


def _problems(problems: Iterable[Problem]) -> tuple[wire.ConfigurationProblem, ...]:
    return tuple(wire.ConfigurationProblem(p.path, wire.ProblemCode(p.code), p.message) for p in problems)
