"""Errors as they go."""

from marshmallow import validate
from marshmallow.fields import List, Nested

from gateway_api.base.errors import CoreAbsent
from gateway_api.base.fields import Text
from gateway_api.web.schemas.describe import says
from gateway_api.web.schemas.records import Answer


class Problem(Answer):
    path = Text(
        required=True, metadata=says("Place in the request, dotted; empty for the whole.", "rate_down")
    )
    code = Text(required=True, metadata=says("`missing`, `unknown` or `invalid`.", "invalid"))
    message = Text(
        required=True, metadata=says("The rule, for people.", "must be a number and a unit, such as 50mbit")
    )


class Error(Answer):
    status = Text(
        required=True, validate=validate.Equal("error"), metadata=says("Tells it from a success.", "error")
    )
    message = Text(required=True, metadata=says("What is wrong, for people.", "No such session"))


class RequestError(Error):
    errors = List(
        Nested(Problem),
        metadata={"description": "What is wrong with which part of the request, where that can be said."},
    )


class InternalError(Error):
    hint = Text(
        metadata=says("What to do where no core daemon listens, for people.", CoreAbsent.HINT),
    )


class Refusal(Answer):
    detail = Text(required=True, metadata=says("Why, for people.", "Could not validate credentials"))


class RoleRefusal(Answer):
    detail = Text(required=True, metadata=says("Why, for people.", "Admin role required"))
