"""The errors of the gateway, without HTTP or varlink. `gateway_api/web/errors.py` turns them into
responses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class GatewayApiError(Exception):
    """Base class of all errors that the programs raise on purpose."""


@dataclass(frozen=True)
class Problem:
    """A rule that a value breaks. `path` is the dotted path of the value in the request or the configuration.
    `code` is for programs: `invalid`, `missing` or `unknown`."""

    path: str
    code: str
    message: str


class Invalid(GatewayApiError):
    """Values of a request or a configuration break rules. Nothing was changed."""

    def __init__(self, *problems: Problem) -> None:
        #: There is at least one problem.
        self.problems = problems
        super().__init__("; ".join(f"{p.path}: {p.message}" if p.path else p.message for p in problems))


class NotFound(GatewayApiError):
    """The object that the request names does not exist."""


class Moved(GatewayApiError):
    """The object has moved to another path, `to`, which includes the query of the request."""

    def __init__(self, to: str) -> None:
        self.to = to
        super().__init__("Moved")


class ListTooLarge(GatewayApiError):
    """A whole list is too large for one response. Its pages are not."""

    def __init__(self) -> None:
        super().__init__("The whole list is too large for one answer; use limit")


class CoreUnavailable(GatewayApiError):
    """The core daemon cannot be reached, or has failed. The text is for the log, never for a client."""


class CoreUnanswered(CoreUnavailable):
    """The reply to a change was lost. The core daemon may have made the change."""


class CoreBusy(CoreUnavailable):
    """The core daemon replied in time to other calls, but not to a call for a list."""


class CoreAbsent(CoreUnavailable):
    """There is no socket of a core daemon."""

    #: What an operator can do.
    HINT = (
        "No core daemon is running, or none is configured. If one was chosen, `systemctl start gateway-core` "
        "starts it. If not: `gateway-core setup` prepares a gateway, and `systemctl enable --now "
        "gateway-core-linux` chooses it. `systemctl enable --now gateway-core-lab` chooses simulated "
        "subscribers, for trials only."
    )


class CoreLacksMethod(CoreUnavailable):
    """The core daemon does not have an optional method of its interface. A client may see the text."""

    def __init__(self, method: str) -> None:
        super().__init__(f"The core daemon lacks the method {method}")


class Conflict(GatewayApiError):
    """The current state does not allow the request."""


class Stale(GatewayApiError):
    """The configuration has another ETag than the request requires. Nothing was changed."""

    def __init__(self, etag: str) -> None:
        #: The current ETag.
        self.etag = etag
        super().__init__("The configuration has changed since; look again")


class StepFailed(GatewayApiError):
    """A step of a change failed, for example on a full disk. Nothing was changed. `step` is a verb and an
    object, such as `write the revision`. A client may see `step` and `reason`: they have no path and no
    secret."""

    def __init__(self, step: str, reason: str) -> None:
        self.step = step
        self.reason = reason
        super().__init__(f"cannot {step}: {reason}")

    @property
    def sentence(self) -> str:
        """The text for a client."""
        return f"Cannot {self.step}: {self.reason}. Nothing was changed"


class StillConnected(GatewayApiError):
    """Some of the sessions that were to end are still connected. `ended` has the records of the sessions that
    ended. A client may see the reason."""

    def __init__(self, connected: int, ended: Sequence[Any], reason: str) -> None:
        self.connected = connected
        self.ended = tuple(ended)
        self.reason = reason
        total = connected + len(self.ended)
        subject = "The session is" if total == 1 else f"{connected} of {total} sessions are"
        super().__init__(f"{subject} still connected: {reason}")


class HubUnavailable(GatewayApiError):
    """The hub cannot be reached, or has failed. The text is for the log, never for a client."""


class AuditUnavailable(GatewayApiError):
    """The audit log cannot be read or written, as `verb` says. The reason is for the log, never for a
    client."""

    def __init__(self, verb: str, reason: object) -> None:
        self.verb = verb
        super().__init__(f"cannot {verb} the audit log: {reason}")


class HistoryUnavailable(GatewayApiError):
    """The history of sessions cannot be read. The reason is for the log, never for a client."""


class SearchTooLong(GatewayApiError):
    """A search in the history did not end in time. `retry_after` is in seconds."""

    def __init__(self, seconds: float, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__(
            f"The search takes more than {seconds:.0f} s: narrow it to a subscriber, an address, an "
            f"interface or a shorter time, or try again in {retry_after} s"
        )


class LedgerUnavailable(GatewayApiError):
    """The login ledger cannot be used. A client may see the message; the reason is for the log."""

    def __init__(self, message: str, reason: object) -> None:
        self.message = message
        super().__init__(f"{message}: {reason}")


class NotAuthenticated(GatewayApiError):
    """The request has no valid token."""


class WrongCredentials(GatewayApiError):
    """The user name and the password of a login do not match."""


class NotAllowed(GatewayApiError):
    """The request requires another role."""


class Disabled(GatewayApiError):
    """The running configuration disables the API."""

    def __init__(
        self,
        reason: str = "The API is disabled: api.enabled is false in the running configuration. "
        "To enable it, run as root on the gateway: gateway-api rescue enable",
    ) -> None:
        super().__init__(reason)


class TooMany(GatewayApiError):
    """A limit is reached. `retry_after` is in seconds. `WHAT` names what the limit counts."""

    WHAT = ""

    def __init__(self, retry_after: int = 1) -> None:
        self.retry_after = retry_after
        super().__init__(f"Too many {self.WHAT}, try again in {retry_after} s")


class TooManyAttempts(TooMany):
    """Too many logins have failed, or wait in the queue."""

    WHAT = "login attempts"


class TooManyLists(TooMany):
    """A worker is already sending as many whole lists as it can."""

    WHAT = "whole lists at a time"


class TooManyStreams(TooMany):
    """One client, or all clients together, have as many event streams as a worker allows."""

    WHAT = "event streams"
