"""Turns of connections in a worker.

A client whose next request is there already would keep the event loop for itself: gevent looks for what other
clients have sent only when nothing else is left to do.
"""

import gevent

_waiting = 0


def give_way() -> None:
    """Return after the next look at the sockets, when the connections that sent something had their turns."""
    global _waiting
    # A timer of 0 seconds fires after that look. The callback of `sleep(0)` comes before it.
    hub = gevent.get_hub()
    _waiting += 1
    try:
        with hub.loop.timer(0) as timer:
            hub.wait(timer)
    finally:
        _waiting -= 1


def gather(expects: bool) -> bool:
    """Let other requests begin. Return False at once if none waits for its turn and none is expected."""
    if not (expects or _waiting):
        return False
    give_way()
    return True
