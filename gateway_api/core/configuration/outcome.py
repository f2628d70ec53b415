"""What comes of a change to the configuration: how it went, or why it was refused."""

from dataclasses import dataclass

from gateway_api.base.errors import GatewayApiError
from gateway_api.core.configuration.store import Commit


class Stale(GatewayApiError):
    """The configuration isn't the one that the caller has seen."""

    def __init__(self, etag: str) -> None:
        #: That of the configuration as it is now.
        self.etag = etag
        super().__init__("the configuration has changed")


class NoSuchUser(GatewayApiError):
    """The running configuration has no user of that name."""


class NothingToConfirm(GatewayApiError):
    """No commit waits for a confirmation."""


class Staged(GatewayApiError):
    """Somebody has staged changes, which would be lost."""


@dataclass(frozen=True)
class Outcome:
    """What came of a commit: so many values changed. `commit` is that of what runs now, which without
    changes is an older one; `deadline` is in epoch seconds; `etag` is of the configuration as it is now."""

    changes: int
    commit: Commit
    deadline: int | None
    etag: str
