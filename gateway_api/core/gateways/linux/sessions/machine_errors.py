"""Errors of the machine, as the port of gateways has them."""

from collections.abc import Iterator
from contextlib import contextmanager

from gateway_api.base.errors import NotDone
from gateway_api.core.gateways.linux.kernel.messages import KernelError
from gateway_api.core.gateways.linux.sessions.session_store import SessionStoreUnavailable


@contextmanager
def not_done(step: str) -> Iterator[None]:
    """Raises NotDone with the `step`. The texts have no secret, and nothing that a subscriber sent."""
    try:
        yield
    except (KernelError, SessionStoreUnavailable) as error:
        raise NotDone(step, str(error)) from error
