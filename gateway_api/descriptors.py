"""How many clients a process has file descriptors for."""

import resource

#: For what else a process has open: files, pipes, databases, connections to the core and to the hub.
_OWN = 96


def places(most: int) -> int:
    """For so many clients of a kind, or fewer where the process's limit (getrlimit(2)) leaves less room: a
    process has two kinds, those whose requests it answers and those that it streams events to."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(most, (limit - _OWN) // 2))
