"""What can go wrong, in the terms of the gateway.

Nothing here knows of HTTP or of varlink: each carries what a caller needs to answer for it, and
`web/errors.py` alone decides the response.
"""

from dataclasses import dataclass


class GatewayApiError(Exception):
    """Root of all errors that this package raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """One rule that one value broke.

    `path` is the dotted place of the value in the request or the configuration, `code` a stable
    word for programs (`invalid`, `missing`, `unknown`), `message` the rule in a sentence.
    """

    path: str
    code: str
    message: str


class Invalid(GatewayApiError):
    """A value breaks a rule; nothing was changed."""

    def __init__(self, *problems: Problem) -> None:
        #: At least one; all of the request that could be found at once.
        self.problems = problems
        super().__init__("; ".join(f"{p.path}: {p.message}" if p.path else p.message for p in problems))


class NotFound(GatewayApiError):
    """The thing that the request names does not exist."""


class AnswerTooLarge(GatewayApiError):
    """Everything at once is more than one answer may hold; pages are the way."""


class CoreUnavailable(GatewayApiError):
    """The core daemon can't be reached, or failed. The text is for the log, never for a client."""


class CoreAbsent(CoreUnavailable):
    """There is no socket of a core daemon."""

    #: What an operator can do about it.
    HINT = (
        "No core daemon is running, or none is configured. `systemctl status gateway-core` shows the one "
        "that was chosen. `systemctl enable --now gateway-core-lab` chooses simulated subscribers, for "
        "trials only."
    )


class Conflict(GatewayApiError):
    """The request makes no sense as things stand."""


class Stale(GatewayApiError):
    """What the caller has seen of a thing is no longer so; nothing was changed."""

    def __init__(self, etag: str) -> None:
        #: The entity tag of the thing as it is.
        self.etag = etag
        super().__init__("The configuration has changed since; look again")


class NotDone(GatewayApiError):
    """The gateway could not do it, a full disk say; nothing was changed."""

    def __init__(self, step: str, reason: str) -> None:
        #: What failed, as a verb and an object, and why: both fit for a client.
        self.step = step
        self.reason = reason
        super().__init__(f"Cannot {step}: {reason}. Nothing was changed")


class HubUnavailable(GatewayApiError):
    """The hub can't be reached, or failed. The text is for the log, never for a client."""


class AuditUnavailable(GatewayApiError):
    """The audit log can't be used. The reason is for the log, never for a client."""

    def __init__(self, verb: str, reason: object) -> None:
        #: What can't be done with it: read or write.
        self.verb = verb
        super().__init__(f"cannot {verb} the audit log: {reason}")


class LedgerUnavailable(GatewayApiError):
    """What all workers know of logins can't be read or written."""

    def __init__(self, message: str, reason: object) -> None:
        #: What can't be done, fit for a client.
        self.message = message
        super().__init__(f"{message}: {reason}")


class NotAuthenticated(GatewayApiError):
    """No token, or none that holds: the caller is nobody."""


class WrongCredentials(GatewayApiError):
    """The login's user and password don't belong together."""


class NotAllowed(GatewayApiError):
    """The caller is known, and its role doesn't suffice."""


_DISABLED = (
    "The API is disabled: api.enabled is false in the running configuration. "
    "To enable it, run as root on the gateway: gateway-api rescue enable"
)


class Disabled(GatewayApiError):
    """The running configuration has turned the API off, as the text says."""

    def __init__(self, reason: str = _DISABLED) -> None:
        super().__init__(reason)


class TooMany(GatewayApiError):
    """More than one may have of something."""

    def __init__(self, what: str, retry_after: int) -> None:
        #: Whole seconds until it is worth another try.
        self.retry_after = retry_after
        super().__init__(f"Too many {what}, try again in {retry_after} s")


class TooManyAttempts(TooMany):
    """Logins failed too often, or too many are waiting."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("login attempts", retry_after)


class TooManyLists(TooMany):
    """As many whole lists are under way as one worker has room for."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("whole lists at a time", retry_after)


class TooManyStreams(TooMany):
    """A client, or all together, have as many streams open as one worker has room for."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("event streams", retry_after)
