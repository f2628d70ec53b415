"""The errors that operations share, as components of the document. `web/errors.py` is what sends them."""

from dataclasses import dataclass

import msgspec
from apispec import APISpec

from gateway_api.web.openapi.converter import reference_to
from gateway_api.web.openapi.headers import headers
from gateway_api.web.records import Error, InternalError, Refusal, RequestError, RoleRefusal
from gateway_api.web.responses import JSON


@dataclass(frozen=True)
class _Shared:
    name: str
    description: str
    record: type[msgspec.Struct] | None = Error
    headers: tuple[str, ...] = ()


_SHARED = {
    304: _Shared("NotModified", "It is what `If-None-Match` names.", None, ("ETag",)),
    400: _Shared("BadRequest", "Something in the request breaks a rule. Nothing was done.", RequestError),
    401: _Shared("Unauthorized", "No token that holds, or a wrong login.", Refusal, ("WWW-Authenticate",)),
    403: _Shared("Forbidden", "Only an admin may do this.", RoleRefusal),
    404: _Shared("NotFound", "What the request names doesn't exist."),
    409: _Shared("Conflict", "The request makes no sense as things stand."),
    412: _Shared(
        "PreconditionFailed", "The configuration has changed since. Nothing was done.", Error, ("ETag",)
    ),
    413: _Shared("ContentTooLarge", "The body is over 1 MiB."),
    414: _Shared("URITooLong", "Path and query are too long."),
    429: _Shared(
        "TooManyRequests",
        "Too many logins have failed, or too many streams are open.",
        Error,
        ("Retry-After",),
    ),
    431: _Shared("RequestHeaderFieldsTooLarge", "A header is too long."),
    500: _Shared(
        "InternalError", "The core daemon could not be reached, or something failed.", InternalError
    ),
    # Retry-After comes with one of the two, and a header of the document is one that is always there.
    503: _Shared(
        "ServiceUnavailable",
        "The running configuration has turned the API off; or, with `Retry-After`, too many whole lists are "
        "under way: `limit` asks for a page.",
    ),
}

#: The records of all errors.
ERRORS = frozenset(shared.record for shared in _SHARED.values() if shared.record is not None)


def add_errors(spec: APISpec) -> None:
    """Adds the components that `error` refers to."""
    for shared in _SHARED.values():
        described = {"description": shared.description, "headers": headers(*shared.headers)}
        if shared.record is not None:
            described["content"] = {JSON: {"schema": reference_to(shared.record)}}
        spec.components.response(shared.name, described)


def error(status: int) -> dict[str, str]:
    """A reference to the response."""
    return {"$ref": f"#/components/responses/{_SHARED[status].name}"}
