"""The records of responses about the history."""

from typing import Annotated

from msgspec import UNSET

from gateway_api.web.records import Count, NextCursor
from gateway_api.wire.contract import Record, about, count
from gateway_api.wire.history import (
    FailedSignOns,
    FlappingSubscriber,
    PastSession,
    TimelineEntry,
    TrafficSample,
)


class PastSessionList(Record, frozen=True, kw_only=True):
    """A list of sessions that are up or have ended."""

    sessions: Annotated[tuple[PastSession, ...], about("The sessions.")]
    count: Count
    next_cursor: NextCursor = UNSET


class TimelineEntryList(Record, frozen=True, kw_only=True):
    """What happened to a subscriber."""

    entries: Annotated[tuple[TimelineEntry, ...], about("The entries.")]
    count: Count
    next_cursor: Annotated[str | None, about("`cursor` of the next page, null on the last one.", None)]


class FailedSignOnsList(Record, frozen=True, kw_only=True):
    """A list of failed sign-ons."""

    failures: Annotated[tuple[FailedSignOns, ...], about("The failed sign-ons.")]
    count: Count
    next_cursor: Annotated[str | None, about("`cursor` of the next page, null on the last one.", None)]


class TrafficSampleList(Record, frozen=True, kw_only=True):
    """The traffic of all trunks over time, the oldest first. A step without a sample is missing."""

    samples: Annotated[tuple[TrafficSample, ...], about("The mean of each step.")]
    step_seconds: Annotated[int, count("Length of a step, seconds.", 10)]
    count: Count


class FlappingSubscriberList(Record, frozen=True, kw_only=True):
    """A list of subscribers with several sessions."""

    subscribers: Annotated[tuple[FlappingSubscriber, ...], about("The subscribers.")]
    count: Count
