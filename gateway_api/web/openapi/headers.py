"""The headers of responses, as components of the document."""

from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow.openapi import OpenAPIConverter

from gateway_api.base.fields import Schema, Text, Whole
from gateway_api.base.http import guards
from gateway_api.web.request_id import HEADER
from gateway_api.web.schemas.describe import says


class _Headers(Schema):
    request_id = Text(
        data_key=HEADER,
        metadata=says(
            "The request's own, or one that was made for it; log lines have it, too.",
            "8a576e8995a64329bbe1797224eb4759",
        ),
    )
    content_type_options = Text(
        data_key="X-Content-Type-Options", metadata=says("Keeps browsers from guessing the type.", "nosniff")
    )
    cache_control = Text(
        data_key="Cache-Control",
        metadata=says("`no-store`, unless the response is the same for every client.", "no-store"),
    )
    strict_transport_security = Text(
        data_key="Strict-Transport-Security",
        metadata=says("Keeps browsers from plain HTTP (RFC 6797).", "max-age=31536000"),
    )
    etag = Text(
        data_key="ETag",
        metadata=says("Entity tag, for If-Match or If-None-Match.", '"2f9c1a7be0d4"'),
    )
    location = Text(
        data_key="Location", metadata=says("Path of what was made.", "/api/v1/webhooks/wh_0123456789abcdef")
    )
    www_authenticate = Text(
        data_key="WWW-Authenticate", metadata=says("Scheme that would do (RFC 6750).", "Bearer")
    )
    retry_after = Whole(
        data_key="Retry-After", metadata=says("Seconds until a next attempt is looked at.", 4)
    )


def add_headers(spec: APISpec, converter: OpenAPIConverter) -> None:
    """Adds the components that `headers` refers to."""
    for field in _Headers().fields.values():
        schema = converter.field2property(field)
        described = {"description": schema.pop("description"), "required": True, "schema": schema}
        spec.components.header(field.data_key or "", described)


def headers(*names: str) -> dict[str, Any]:
    """References to those of a response: these, and what every response has."""
    every = (HEADER, *guards(tls=True))
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*every, *names)}
