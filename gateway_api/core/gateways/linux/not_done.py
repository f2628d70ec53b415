"""The errors of the machine as those of the port `Gateway`."""

from collections.abc import Iterator
from contextlib import contextmanager

from gateway_api.base.errors import NotDone
from gateway_api.core.gateways.linux.netlink.messages import KernelError
from gateway_api.core.gateways.linux.session_store import SessionStoreUnavailable


@contextmanager
def not_done(step: str) -> Iterator[None]:
    """Raises NotDone where the kernel or the disk refuses. Their texts have no secret, and nothing that a
    subscriber sent."""
    try:
        yield
    except (KernelError, SessionStoreUnavailable) as error:
        raise NotDone(step, str(error)) from error
