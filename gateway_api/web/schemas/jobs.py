"""Schemas of bodies that start jobs."""

from typing import Any, ClassVar

from marshmallow import ValidationError, validate
from marshmallow.fields import Nested

from gateway_api.base.fields import FlagField, Schema, WholeField, says
from gateway_api.web.schemas.queries import SessionConditions
from gateway_api.web.schemas.requests import RateChange
from gateway_api.wire.core.jobs import MOST_PER_SECOND, PER_SECOND


class JobFilter(SessionConditions):
    """Which sessions: all conditions must hold, and there is at least one."""

    json_schema: ClassVar[dict[str, Any]] = {"minProperties": 1}


def _not_empty(filter: dict[str, Any]) -> None:
    if not filter:
        raise ValidationError("must have at least one condition")


class DisconnectJob(Schema):
    filter = Nested(
        JobFilter,
        required=True,
        validate=_not_empty,
        metadata={"description": "Which sessions: those that match when the job starts."},
    )
    dry_run = FlagField(load_default=False, metadata=says("Whether only to list the sessions.", True))
    per_second = WholeField(
        load_default=PER_SECOND,
        validate=validate.Range(1, MOST_PER_SECOND, error=f"must be 1 to {MOST_PER_SECOND}"),
        metadata=says("The most sessions per second.", 50),
    )


class RateJob(RateChange, DisconnectJob):
    """Loaded as a RateChange, with the other fields beside it."""
