"""Configuration service: handlers of the core's interface for the configuration."""

import re
import threading
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from gateway_contract.base.fields import is_line
from gateway_contract.configuration import Configuration, mask_secrets
from gateway_contract.contract import Method, Nothing, record_of
from gateway_contract.core import configuration as wire
from gateway_contract.varlink.dispatcher import make_parameter_error
from gateway_contract.varlink.protocol import Peer
from gateway_core.configuration.running import Snapshot
from gateway_core.configuration.workspace import ChangeRequest, Workspace
from gateway_core.records.changes import Caller

#: Without a commit, the settings are sent again after 15 waits of one second.
_MAX_WAITS, _WAIT_SECONDS = 15, 1.0
_ACTION_PATTERN = re.compile(r"[a-z_]{1,32}\.[a-z_]{1,32}", re.ASCII)


class ConfigurationService:
    """Service for the configuration in one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._commit_condition = threading.Condition()
        self._commit_count = 0
        workspace.follow(self._count_commit)

    def get_configuration(self, _: Method[Any]) -> wire.ConfigurationReply:
        snapshot = self._workspace.snapshot
        return wire.ConfigurationReply(mask_secrets(snapshot.running.document), snapshot.etag)

    def check_access(self, call: wire.CheckAccess) -> wire.AccessReply:
        snapshot = self._workspace.snapshot
        users = _find_users(snapshot, call.usernames)
        enabled = snapshot.running.sections.api.enabled
        return wire.AccessReply(enabled, tuple(user for user, _ in users), snapshot.version)

    def get_login(self, call: wire.GetLogin) -> wire.LoginReply:
        snapshot = self._workspace.snapshot
        api = snapshot.running.sections.api
        highest = max((int(user.password_hash[4:6]) for user in api.users), default=None)
        for user, password_hash in _find_users(snapshot, [call.username]):
            return wire.LoginReply(api.token_lifetime, user, password_hash, highest)
        return wire.LoginReply(api.token_lifetime, highest_cost=highest)

    def get_api_settings(self, _: Method[Any]) -> Iterator[wire.ApiSettings | None]:
        """Yield the present settings of the API at once, after each commit, and every 15 seconds. Yield None
        after each second without a commit, so that the server checks the connection."""
        while True:
            known_commit_count = self._commit_count
            yield _make_settings(self._workspace.snapshot)
            for _wait in range(_MAX_WAITS):
                if self._wait_for_commit(known_commit_count):
                    break
                yield None

    def end_tokens(self, call: wire.EndTokens, peer: Peer | None) -> Nothing:
        self._workspace.end_tokens(call.username, _make_request("end_tokens", call, peer))
        return Nothing()

    def get_candidate(self, _: Method[Any]) -> wire.ConfigurationReply:
        snapshot = self._workspace.snapshot
        return wire.ConfigurationReply(mask_secrets(snapshot.candidate), snapshot.etag)

    def edit_candidate(self, call: wire.EditCandidate, peer: Peer | None) -> wire.EditReply:
        return self._workspace.edit(_parse_edits(call.edits), _make_request("edit_all", call, peer))

    def replace_candidate(self, call: wire.ReplaceCandidate, peer: Peer | None) -> wire.StagedReply:
        request = _make_request("replace_candidate", call, peer)
        return self._workspace.replace_candidate(call.configuration, request)

    def discard_candidate(self, call: wire.DiscardCandidate, peer: Peer | None) -> wire.DiscardReply:
        return self._workspace.discard(_make_request("discard", call, peer))

    def rollback_candidate(self, call: wire.RollbackCandidate, peer: Peer | None) -> wire.StagedReply:
        return self._workspace.rollback(call.revision, _make_request("rollback", call, peer))

    def compare_configuration(self, call: wire.CompareConfiguration) -> wire.ComparisonReply:
        return self._workspace.compare(call.revision, call.to_revision)

    def commit_candidate(self, call: wire.CommitCandidate, peer: Peer | None) -> wire.CommitReply:
        return self._workspace.commit(_make_request("commit", call, peer), call.confirm_seconds)

    def replace_configuration(self, call: wire.ReplaceConfiguration, peer: Peer | None) -> wire.CommitReply:
        return self._workspace.replace_running(call.configuration, _make_request("replace", call, peer))

    def confirm_commit(self, call: wire.ConfirmCommit, peer: Peer | None) -> Nothing:
        self._workspace.confirm(_make_request("confirm", call, peer))
        return Nothing()

    def amend_configuration(self, call: wire.AmendConfiguration, peer: Peer | None) -> wire.CommitReply:
        return self._workspace.amend(_parse_edits(call.edits), _make_request("amend", call, peer))

    def restore_revision(self, call: wire.RestoreRevision, peer: Peer | None) -> wire.CommitReply:
        return self._workspace.restore(call.revision, _make_request("restore", call, peer))

    def list_archive(self, _: Method[Any]) -> wire.ArchiveReply:
        running, *archived = self._workspace.snapshot.commits
        revisions = tuple(
            record_of(wire.ArchivedRevision, commit, revision=number)
            for number, commit in enumerate(archived, 1)
        )
        return wire.ArchiveReply(revisions, len(revisions), record_of(wire.RunningCommit, running))

    def get_archived_revision(self, call: wire.GetArchivedRevision) -> wire.ArchivedRevisionReply:
        commit, document = self._workspace.read_archived(call.revision)
        masked = mask_secrets(document)
        return record_of(wire.ArchivedRevisionReply, commit, revision=call.revision, configuration=masked)

    def _count_commit(self, _: Configuration) -> None:
        with self._commit_condition:
            self._commit_count += 1
            self._commit_condition.notify_all()

    def _wait_for_commit(self, known_commit_count: int) -> bool:
        """Wait until the number of commits is greater than `known_commit_count`. Return False if there is no
        new commit within a second."""
        with self._commit_condition:
            return self._commit_condition.wait_for(
                lambda: self._commit_count > known_commit_count, _WAIT_SECONDS
            )


def _make_request(verb: str, call: Method[Any], peer: Peer | None) -> ChangeRequest:
    """Return the terms of the change that a call requests. Raises ErrorReply (InvalidParameter) if a
    parameter is not valid."""
    fields = msgspec.structs.asdict(call)
    author, comment, action = fields.get("author", ""), fields.get("comment"), fields.get("action")
    for name, text in (("author", author), ("comment", comment or "")):
        if len(text) > wire.MAX_COMMENT_LENGTH or not is_line(text):
            raise make_parameter_error(name)
    if action is not None and not _ACTION_PATTERN.fullmatch(action):
        raise make_parameter_error("action")
    caller = Caller(action or f"configuration.{verb}", peer, fields.get("request_id"))
    return ChangeRequest(author, comment, fields.get("if_match"), caller, fields.get("max_sessions_dropped"))


def _make_settings(snapshot: Snapshot) -> wire.ApiSettings:
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
        audit_forward=api.audit.forward,
        version=snapshot.version,
    )


def _find_users(snapshot: Snapshot, usernames: Collection[str]) -> list[tuple[wire.ApiUser, str]]:
    """Return the users with these names, each with its password hash."""
    generations = snapshot.state.generations or {}
    return [
        (wire.ApiUser(user.username, wire.Role(user.role), generations[user.username]), user.password_hash)
        for user in snapshot.running.sections.api.users
        if user.username in usernames
    ]


def _parse_edits(edits: Iterable[wire.ConfigurationEdit]) -> list[wire.Edit]:
    operations = []
    for number, edit in enumerate(edits):
        text = edit.value_json
        try:
            value = None if text is None else msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise make_parameter_error(f"edits.{number}.value_json") from error
        if text is None and edit.action == "set":
            raise make_parameter_error(f"edits.{number}.value_json")
        operations.append(wire.Edit(edit.action, edit.path, value))
    return operations
