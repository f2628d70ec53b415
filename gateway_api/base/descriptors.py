"""How many clients a process has file descriptors for."""

import resource
from pathlib import Path

#: For what else a process opens later: files, pipes, databases, connections to the core and to the hub.
_OWN = 64


def places(most: int) -> int:
    """For so many clients of a kind, or fewer where the process's limit (getrlimit(2)) leaves less room: a
    process has two kinds, those whose requests it answers and those that it streams events to. What is open
    now counts, too: a worker inherits what its parent has open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # One of them is the folder's own.
    now_open = len(list(Path("/proc/self/fd").iterdir())) - 1
    return max(1, min(most, (limit - now_open - _OWN) // 2))
