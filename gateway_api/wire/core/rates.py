"""The fields of calls that change rates, and of temporary rates."""

from typing import Annotated

from msgspec import Meta

from gateway_api.base.texts import MAX_BPS
from gateway_api.wire.contract import about

_RATE = Meta(ge=1, le=MAX_BPS)

#: The longest time of a temporary rate, in seconds.
LONGEST_EXPIRY = 366 * 86_400
RateExpiresAt = Annotated[
    int | None,
    about(
        "When the former rates return, Unix epoch seconds; null unless the rates are temporary.",
        None,
        1795275113,
    ),
]
NewRateDown = Annotated[
    Annotated[int, _RATE] | None,
    about("Downstream rate, bits per second; as it is without. One of the two is required.", 250_000_000),
]
NewRateUp = Annotated[
    Annotated[int, _RATE] | None, about("Upstream rate, bits per second; as it is without.", 50_000_000)
]
ExpiresIn = Annotated[
    Annotated[int, Meta(ge=1, le=LONGEST_EXPIRY)] | None,
    about("Seconds until the former rates return; never without this and until.", 3600),
]
Until = Annotated[
    int | None,
    about("When the former rates return, Unix epoch seconds; instead of expires_in.", 1795275113),
]
_FORMER = "that returns, bits per second; null unless the rates are temporary."
FormerRateDown = Annotated[int | None, about(f"Downstream rate {_FORMER}", None, 100_000_000)]
FormerRateUp = Annotated[int | None, about(f"Upstream rate {_FORMER}", None, 20_000_000)]
