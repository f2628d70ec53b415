"""The core's contract for the effect of a commit on services and sessions."""

from collections.abc import Sequence
from typing import Annotated, Self

from msgspec import Meta

from gateway_contract.contract import Enumeration, Failure, Record, about, count

#: The most sessions that an Impact names.
MAX_NAMED_SESSIONS = 100
#: The largest limit on dropped sessions: what 32 bits hold.
LARGEST_LIMIT = (1 << 31) - 1


class ServiceAction(Enumeration):
    """The effect of a commit on a service."""

    RELOAD = "reload", "It reads its files again."
    RESTART = "restart", "It stops and starts again."


class ServiceImpact(Record, frozen=True):
    """The effect of a commit on one service."""

    name: Annotated[str, about("Name of the service.", "accel-ppp")]
    action: Annotated[ServiceAction, about("What happens to it.", "reload")]


class Impact(Record, frozen=True):
    """The effect of a commit on services and sessions."""

    services: Annotated[tuple[ServiceImpact, ...], about("The services that reload or restart.")] = ()
    sessions_dropped: Annotated[int, count("How many sessions end.", 2)] = 0
    sessions: Annotated[
        tuple[int, ...], about("Ids of the sessions that end: the lowest, at most 100.", [7, 12])
    ] = ()
    sessions_held: Annotated[
        int,
        count(
            "How many of these go on until the commit is confirmed, if it has confirm_seconds: sessions of "
            "DHCP homes, which the return of the former configuration leaves as they are.",
            1,
        ),
    ] = 0

    @classmethod
    def of(cls, sessions: Sequence[int], services: tuple[ServiceImpact, ...] = (), *, held: int = 0) -> Self:
        """Return the effect of a commit. `sessions` are the ids of all sessions that end, in ascending order;
        `held` is the number of sessions that end only after the commit is confirmed."""
        return cls(services, len(sessions), tuple(sessions[:MAX_NAMED_SESSIONS]), held)


ImpactPreview = Annotated[
    Impact | None,
    about(
        "What a commit of the candidate would do now; null if it is invalid, or with a revision.",
        {
            "services": [{"name": "accel-ppp", "action": "reload"}],
            "sessions_dropped": 2,
            "sessions": [7, 12],
            "sessions_held": 1,
        },
    ),
]
Effect = Annotated[Impact, about("What the commit did; nothing when there was nothing to commit.")]
MaxSessionsDropped = Annotated[
    Annotated[int, Meta(ge=0, le=LARGEST_LIMIT)] | None,
    about("Fails if more sessions would end, 0 to 2147483647; null for no limit.", 0),
]


class CommitDropsSessionsError(Failure, frozen=True):
    """Refusal of a commit: it would end more sessions than max_sessions_dropped. Nothing was changed."""

    sessions_dropped: Annotated[int, count("How many sessions would end.", 12)]
    allowed: Annotated[int, count("max_sessions_dropped of the call.", 0)]
