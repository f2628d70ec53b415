"""Polls of health by several clients, while another client does something else."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from bench.load import Load, Request, load
from bench.peers.gateway import Gateway

#: So many that each worker has some.
POLLERS = 8
#: Milliseconds between two requests of a poller.
_PAUSE = 20


def polled(ours: Gateway, seconds: int, beside: Request | None = None) -> Load:
    """The polls. `beside` is what the other client requests, on one connection without a pause."""
    polls = replace(ours.get("/health"), pause=_PAUSE)
    if not beside:
        return load(polls, POLLERS, seconds)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(load, beside, 1, seconds)
        found = load(polls, POLLERS, seconds)
        # It raises what was wrong with the other client.
        other.result()
    return found
