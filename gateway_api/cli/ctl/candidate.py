"""The candidate of a gateway. Its changes are staged and committed without overwriting those of other
users."""

from collections.abc import Sequence
from typing import Any

from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus, complain
from gateway_api.cli.ctl.texts import lines, sessions
from gateway_api.client.errors import ClientError
from gateway_api.client.gateway import Record, RemoteGateway

ROOT = "/system/config"
#: The most operations of a request.
_MOST = 1000


class Candidate:
    """Each request requires the entity tag of the one before it."""

    def __init__(self, gateway: RemoteGateway) -> None:
        self._gateway = gateway
        self._etag: str | None = None
        self._is_staged = False

    def read(self, which: str) -> Any:
        """The data of /candidate or /compare, or of the running configuration with ''. Raises ClientError."""
        answer = self._gateway.answer("GET", ROOT + which)
        self._etag = answer.etag
        return answer.data

    def require_clean(self, *, discard: bool, remedy: str) -> None:
        """Raises ClientError while the candidate has changes of somebody, unless they are to be discarded."""
        difference = self.read("/compare")
        if not difference["diff"]:
            return
        if not discard:
            raise CommandFailure(
                ExitStatus.REFUSED,
                f"the candidate has these changes; commit them, discard them, or use {remedy}:",
                *lines(difference["diff"].rstrip("\n")),
            )
        self._change("/discard")

    def stage(self, operations: Sequence[Record]) -> None:
        """Raises ClientError."""
        for start in range(0, len(operations), _MOST):
            self._change("/edit", {"operations": list(operations[start : start + _MOST])})
            self._is_staged = True

    def commit(self, body: Record) -> Record:
        """Raises ClientError."""
        committed: Record = self._change("/commit", body)
        self._is_staged = False
        return committed

    def unstage(self) -> None:
        """Discards what `stage` staged, if it is not committed yet."""
        if not self._is_staged:
            return
        try:
            self._change("/discard")
            self._is_staged = False
        except ClientError as failure:
            complain([*failure.lines, "the changes stay in the candidate"])

    def _change(self, which: str, body: Record | None = None) -> Any:
        answer = self._gateway.answer("POST", ROOT + which, body, if_match=self._etag)
        self._etag = answer.etag
        return answer.data


def effect(difference: Record) -> list[str]:
    """The effect of a commit as lines: services and sessions. An invalid candidate has no effect yet."""
    impact = difference.get("impact")
    if impact is None:
        return []
    services = [f"{each['name']}: {each['action']}" for each in impact["services"]]
    return [*services, f"{sessions(impact['sessions_dropped'])} would end"]
