"""The machine's two clocks: the wall clock and the steady clock."""

import secrets
import time
from pathlib import Path

_KERNELS_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    """Times of one boot of the machine, which `boot_id` identifies."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id

    def wall(self) -> float:
        """Epoch seconds. They jump when the clock is set."""
        return time.time()

    def steady(self) -> float:
        """Seconds since the boot, time asleep included. They never jump."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """The kernel's id of this boot. A random id where it cannot be read: then earlier times count as those of
    another boot, which is safe."""
    try:
        return _KERNELS_BOOT_ID.read_text().strip()
    except OSError:
        return secrets.token_hex(16)
