"""Changes to the kernel's network by pyroute2, on one native thread.

pyroute2 0.9 runs an event loop inside each call, which two callers at once break ("This event loop is already
running"). It wants to be used from the thread that made it.
"""

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from gateway_api.core.gateways.linux.kernel.messages import KernelError, NoDevice

T = TypeVar("T")


class Kernel:
    """The kernel, for changes. Any thread may call; one call runs at a time, whole."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "netlink")
        try:
            self._ip = self._thread.submit(IPRoute).result()
        except OSError as error:
            self._thread.shutdown()
            raise KernelError("open a netlink socket", error.strerror, error.errno) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.submit(self._ip.close).result()
        self._thread.shutdown()

    def change(self, step: str, change: Callable[[Any], T]) -> T:
        """The result of `change(ip)`, with pyroute2's IPRoute. `step` is a verb and an object, for the error.
        Raises KernelError; NoDevice when the device is gone."""
        try:
            return self._thread.submit(change, self._ip).result()
        except NetlinkError as error:
            kind = NoDevice if error.code == errno.ENODEV else KernelError
            raise kind(step, error.args[1], error.code) from error


def unless(*codes: int, change: Callable[[], object]) -> bool:
    """Makes a change, inside `Kernel.change`. False when the kernel refused with one of the codes, such as
    EEXIST for a thing that is there already."""
    try:
        change()
    except NetlinkError as error:
        if error.code not in codes:
            raise
        return False
    return True
