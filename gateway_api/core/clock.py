"""The machine's two clocks: the one that people set, and the one that only counts."""

import secrets
import time
from pathlib import Path

_KERNELS_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    """Times of one boot of the machine, which `boot_id` tells from any other."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id

    def wall(self) -> float:
        """Epoch seconds. They jump whenever somebody sets the clock."""
        return time.time()

    def steady(self) -> float:
        """Seconds since the boot, time asleep included. They never jump."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """The kernel's id of this boot. Where the kernel's file can't be read, an id of its own: what was counted
    before then seems to be of another boot, which is safe."""
    try:
        return _KERNELS_BOOT_ID.read_text().strip()
    except OSError:
        return secrets.token_hex(16)
