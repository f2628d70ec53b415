"""The errors of the gateway, without HTTP or varlink. `web/errors.py` makes responses of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class GatewayApiError(Exception):
    """Root of all errors that this package raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """A rule that a value breaks. `path` is the dotted place of the value in the request or the
    configuration, `code` is for programs: `invalid`, `missing` or `unknown`."""

    path: str
    code: str
    message: str


class Invalid(GatewayApiError):
    """Values break rules; nothing was changed."""

    def __init__(self, *problems: Problem) -> None:
        #: At least one.
        self.problems = problems
        super().__init__("; ".join(f"{p.path}: {p.message}" if p.path else p.message for p in problems))


class NotFound(GatewayApiError):
    """The object that the request names does not exist."""


class Moved(GatewayApiError):
    """The object has another path, with the query of the request if it has one."""

    def __init__(self, to: str) -> None:
        self.to = to
        super().__init__("Moved")


class ListTooLarge(GatewayApiError):
    """A whole list is too large for one response. Pages are not."""

    def __init__(self) -> None:
        super().__init__("The whole list is too large for one answer; use limit")


class CoreUnavailable(GatewayApiError):
    """The core daemon cannot be reached, or failed. The text is for the log, never for a client."""


class CoreUnanswered(CoreUnavailable):
    """The reply to a change was lost, after the core daemon got the call or may have got it."""


class CoreBusy(CoreUnavailable):
    """The core daemon did not reply in time to a call for a list, but to other calls."""


class CoreAbsent(CoreUnavailable):
    """There is no socket of a core daemon."""

    #: For an operator.
    HINT = (
        "No core daemon is running, or none is configured. If one was chosen, `systemctl start gateway-core` "
        "starts it. If not: `gateway-core setup` prepares a gateway, and `systemctl enable --now "
        "gateway-core-linux` chooses it. `systemctl enable --now gateway-core-lab` chooses simulated "
        "subscribers, for trials only."
    )


class CoreLacksMethod(CoreUnavailable):
    """The core daemon does not have a method of its interface that a core may leave out. The text may be
    shown to a client."""

    def __init__(self, method: str) -> None:
        super().__init__(f"The core daemon lacks the method {method}")


class Conflict(GatewayApiError):
    """The current state does not allow the request."""


class Stale(GatewayApiError):
    """The configuration has another entity tag than the request requires; nothing was changed."""

    def __init__(self, etag: str) -> None:
        #: The current entity tag.
        self.etag = etag
        super().__init__("The configuration has changed since; look again")


class StepFailed(GatewayApiError):
    """A step of a change failed, for example on a full disk; nothing was changed. `step` is a verb and an
    object, such as `write the revision`. It and the reason may be shown to a client: no path, no secret."""

    def __init__(self, step: str, reason: str) -> None:
        self.step = step
        self.reason = reason
        super().__init__(f"cannot {step}: {reason}")

    @property
    def sentence(self) -> str:
        """The text for a client."""
        return f"Cannot {self.step}: {self.reason}. Nothing was changed"


class StillConnected(GatewayApiError):
    """Sessions that were to end are still there. `ended` has a record of each of the others. The reason may
    be shown to a client."""

    def __init__(self, connected: int, ended: Sequence[Any], reason: str) -> None:
        self.connected = connected
        self.ended = tuple(ended)
        self.reason = reason
        total = connected + len(self.ended)
        subject = "The session is" if total == 1 else f"{connected} of {total} sessions are"
        super().__init__(f"{subject} still connected: {reason}")


class HubUnavailable(GatewayApiError):
    """The hub cannot be reached, or failed. The text is for the log, never for a client."""


class AuditUnavailable(GatewayApiError):
    """The audit log cannot be used. `verb` is read or write. The reason is for the log, never for a
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
    """The login ledger cannot be used. The message may be shown to a client, the reason is for the log."""

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
    """A limit is reached. `retry_after` is in seconds."""

    WHAT = ""

    def __init__(self, retry_after: int = 1) -> None:
        self.retry_after = retry_after
        super().__init__(f"Too many {self.WHAT}, try again in {retry_after} s")


class TooManyAttempts(TooMany):
    """After failed logins, or with a full queue of logins."""

    WHAT = "login attempts"


class TooManyLists(TooMany):
    """A worker makes and sends as many whole lists as it can."""

    WHAT = "whole lists at a time"


class TooManyStreams(TooMany):
    """One client, or all of them, have as many event streams as a worker allows."""

    WHAT = "event streams"
