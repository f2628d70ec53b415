"""Errors of the gateway, without HTTP or varlink. `gateway_api/web/errors.py` converts them to responses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class GatewayApiError(Exception):
    """Base class of all errors that the programs raise on purpose."""


@dataclass(frozen=True)
class Problem:
    """Rule that a value breaks. `path` is the dotted path of the value in the request or the configuration.
    `code` is for programs: `invalid`, `missing` or `unknown`."""

    path: str
    code: str
    message: str


class Invalid(GatewayApiError):
    """Refusal of a request or a configuration whose values break rules. Nothing was changed."""

    def __init__(self, *problems: Problem) -> None:
        #: There is at least one problem.
        self.problems = problems
        super().__init__(
            "; ".join(
                f"{problem.path}: {problem.message}" if problem.path else problem.message
                for problem in problems
            )
        )


class NotFound(GatewayApiError):
    """Error of a request that names an object which does not exist."""


class Moved(GatewayApiError):
    """Redirection of a request: the object has moved to the path `to`, which includes the query of the
    request."""

    def __init__(self, to: str) -> None:
        self.to = to
        super().__init__("Moved")


class ListTooLarge(GatewayApiError):
    """Refusal of a whole list that is too large for one response. The client can request pages."""

    def __init__(self) -> None:
        super().__init__("The whole list is too large for one answer; use limit")


class CoreUnavailable(GatewayApiError):
    """Error of a call: the core daemon cannot be reached, or has failed. The text is for the log, never for a
    client."""


class CoreUnanswered(CoreUnavailable):
    """Error of a change whose reply was lost. The core daemon may have made the change."""


class CoreBusy(CoreUnavailable):
    """Error of a call for a list: the core daemon did not reply in time, but replied to other calls."""


class CoreAbsent(CoreUnavailable):
    """Error of a call: no socket of a core daemon exists."""

    #: What an operator can do.
    HINT = (
        "No core daemon is running, or none is configured. If one was chosen, `systemctl start gateway-core` "
        "starts it. If not, with the package gateway-core: `gateway-core setup` prepares a gateway, and "
        "`systemctl enable --now gateway-core-linux` chooses it. `systemctl enable --now gateway-core-lab` "
        "chooses simulated subscribers, for trials only."
    )


class CoreLacksMethod(CoreUnavailable):
    """Error of a call: the core daemon does not have this optional method of the interface. A client may see
    the text."""

    def __init__(self, method: str) -> None:
        super().__init__(f"The core daemon lacks the method {method}")


class Conflict(GatewayApiError):
    """Refusal of a request that the current state does not allow."""


class Stale(GatewayApiError):
    """Refusal of a change: the request requires another ETag than the configuration has. Nothing was
    changed."""

    def __init__(self, etag: str) -> None:
        #: The current ETag.
        self.etag = etag
        super().__init__("The configuration has changed since; look again")


class StepFailed(GatewayApiError):
    """Failure of one step of a change, for example on a full disk. Nothing was changed. `step` is a verb and
    an object, such as `write the revision`. A client may see `step` and `reason`, so `step` and `reason`
    contain no path and no secret."""

    def __init__(self, step: str, reason: str) -> None:
        self.step = step
        self.reason = reason
        super().__init__(f"cannot {step}: {reason}")

    @property
    def sentence(self) -> str:
        """Text of the error for a client."""
        return f"Cannot {self.step}: {self.reason}. Nothing was changed"


class StillConnected(GatewayApiError):
    """Failure to end sessions: some of the sessions are still connected. `ended` has the records of the
    sessions that ended. The text has no internal details, so the API sends the text to clients."""

    def __init__(self, connected: int, ended: Sequence[Any], reason: str) -> None:
        self.connected = connected
        self.ended = tuple(ended)
        self.reason = reason
        total = connected + len(self.ended)
        subject = "The session is" if total == 1 else f"{connected} of {total} sessions are"
        super().__init__(f"{subject} still connected: {reason}")


class HubUnavailable(GatewayApiError):
    """Error of a call: the hub cannot be reached, or has failed. The text is for the log, never for a
    client."""


class AuditUnavailable(GatewayApiError):
    """Failure to read or to write the audit log, as `verb` says. The reason is for the log, never for a
    client."""

    def __init__(self, verb: str, reason: object) -> None:
        self.verb = verb
        super().__init__(f"cannot {verb} the audit log: {reason}")


class HistoryUnavailable(GatewayApiError):
    """Failure to read the history of sessions. The reason is for the log, never for a client."""


class SearchTooLong(GatewayApiError):
    """Error of a search in the history that did not end in time. `retry_after` is in seconds."""

    def __init__(self, seconds: float, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__(
            f"The search takes more than {seconds:.0f} s: narrow it to a subscriber, an address, an "
            f"interface or a shorter time, or try again in {retry_after} s"
        )


class LedgerUnavailable(GatewayApiError):
    """Failure to use the login ledger. A client may see the message; the reason is for the log."""

    def __init__(self, message: str, reason: object) -> None:
        self.message = message
        super().__init__(f"{message}: {reason}")


class NotAuthenticated(GatewayApiError):
    """Refusal of a request without a valid token."""


class WrongCredentials(GatewayApiError):
    """Refusal of a login: the user name and the password do not match."""


class NotAllowed(GatewayApiError):
    """Refusal of a request that requires another role."""


class Disabled(GatewayApiError):
    """Refusal of a request: the running configuration disables the API."""

    def __init__(
        self,
        reason: str = "The API is disabled: api.enabled is false in the running configuration. "
        "To enable it, run as root on the gateway: gateway-api rescue enable",
    ) -> None:
        super().__init__(reason)


class TooMany(GatewayApiError):
    """Refusal of a request that exceeds a limit. `retry_after` is in seconds. `WHAT` names the things that
    the limit counts."""

    WHAT = ""

    def __init__(self, retry_after: int = 1) -> None:
        self.retry_after = retry_after
        super().__init__(f"Too many {self.WHAT}, try again in {retry_after} s")


class TooManyAttempts(TooMany):
    """Refusal of a login: too many logins have failed, or wait in the queue."""

    WHAT = "login attempts"


class TooManyLists(TooMany):
    """Refusal of a whole list: the worker already sends as many whole lists as it can."""

    WHAT = "whole lists at a time"


class TooManyStreams(TooMany):
    """Refusal of an event stream: one client, or all clients together, have as many event streams as a worker
    allows."""

    WHAT = "event streams"
