"""The steps by which a configuration comes to run, and what is said when one fails."""

from collections.abc import Iterator
from contextlib import contextmanager

from gateway_api.base.errors import GatewayApiError


class StepFailed(GatewayApiError):
    """A valid change could not be made; what was so before still is."""

    def __init__(self, name: str, reason: str) -> None:
        #: What was being done, as a verb and an object: `write the revision`.
        self.name = name
        #: Why it failed, fit for a client: no path, no secret.
        self.reason = reason
        super().__init__(f"cannot {name}: {reason}")


@contextmanager
def disk_step(name: str) -> Iterator[None]:
    """A step that the disk may refuse: raises StepFailed for an OSError in the block."""
    try:
        yield
    except OSError as error:
        raise StepFailed(name, error.strerror or "an error without a name") from error
