"""What a change to the configuration leads to: its result, or the error."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway_api.base.errors import GatewayApiError
from gateway_api.core.configuration.state import Commit
from gateway_api.wire.core.configuration import ConfigurationDifference


class Unreadable(GatewayApiError):
    """A file is missing or has unexpected content."""


class StepFailed(GatewayApiError):
    """A valid change failed. The former state still holds."""

    def __init__(self, name: str, reason: str) -> None:
        #: The step, as a verb and an object: `write the revision`.
        self.name = name
        #: Why it failed, for a client: no path, no secret.
        self.reason = reason
        super().__init__(f"cannot {name}: {reason}")


@contextmanager
def disk_step(name: str) -> Iterator[None]:
    """Raises StepFailed for an OSError in the block."""
    try:
        yield
    except OSError as error:
        raise StepFailed(name, error.strerror or "an error without a name") from error


class Stale(GatewayApiError):
    """The configuration is not the one that the caller has read."""

    def __init__(self, etag: str) -> None:
        #: The current entity tag.
        self.etag = etag
        super().__init__("the configuration has changed")


class NoSuchUser(GatewayApiError):
    """The running configuration has no user of that name."""


class NothingToConfirm(GatewayApiError):
    """No commit waits for a confirmation."""


class Staged(GatewayApiError):
    """There are staged changes, which would be lost."""


@dataclass(frozen=True)
class Outcome:
    """The result of a commit: the number of changed values. `commit` is that of the running configuration,
    an older one if nothing changed; `deadline` is in epoch seconds; `etag` is the current one. `before` has
    the lines that were committed, and the entity tag and the deadline before the commit."""

    changes: int
    commit: Commit
    deadline: int | None
    etag: str
    before: ConfigurationDifference
