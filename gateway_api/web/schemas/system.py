"""Records of the gateway itself and of logins, as they go."""

from marshmallow import INCLUDE, validate

from gateway_api.base.fields import Text, Whole
from gateway_api.web.schemas.describe import says
from gateway_api.web.schemas.records import COUNT, Answer, Record


class Token(Record):
    access_token = Text(metadata=says("JSON Web Token (RFC 7519).", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.c2ln"))
    token_type = Text(validate=validate.Equal("bearer"), metadata=says("How to send it.", "bearer"))
    expires_in = Whole(validate=COUNT, metadata=says("Seconds until the token expires.", 3600))


class Version(Record):
    product = Text(metadata=says("Name of the product.", "Subscriber Gateway"))
    version = Text(metadata=says("Its version.", "0.1.0"))
    component = Text(metadata=says("Which part of it answers.", "gateway-api"))


class Health(Record):
    uptime_seconds = Whole(validate=COUNT, metadata=says("Seconds since the core daemon started.", 86400))
    active_sessions = Whole(validate=COUNT, metadata=says("Sessions there are.", 298))
    product = Text(metadata=says("Name of the product.", "Subscriber Gateway"))
    version = Text(metadata=says("Its version.", "0.1.0"))


class OpenApi(Answer):
    """The document itself, as the OpenAPI Specification has it."""

    class Meta:
        unknown = INCLUDE

    openapi = Text(required=True, metadata=says("Version of the OpenAPI Specification.", "3.1.0"))
