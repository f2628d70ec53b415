"""The operations of the API: the list of routes, `etc/routes.txt`, and the page of the reference, from
the OpenAPI document."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway_api.base.settings import TOKEN, USERS
from gateway_api.cli.documents.reference import code, paragraph, table
from gateway_api.web.app import ROUTES
from gateway_api.web.operation import template


def routes() -> str:
    """All routes of both profiles, one per line: method, path, access and profile."""
    found = [("# method", "path", "access", "profile")]
    for profile in (USERS, TOKEN):
        for resource in ROUTES[profile]:
            for _, path, operation in resource.rows():
                found.append((operation.method, template(path), operation.access.value, profile.name))
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    return "".join(f"{'  '.join(map(str.ljust, row, widths)).rstrip()}\n" for row in found)


_INTRODUCTION = """
Each operation, with its parameters, the fields of its request and of the `data` in its response, and the
role that it requires. The page `/api/v1/docs` of a gateway has all schemas, and can send requests.
"""
_HEAD = ("name", "type", "meaning")
#: Of so many values the first ones are shown.
_SHOWN = 6
_FORMATS = {"ipv4": "IPv4 address", "ipv6": "IPv6 address"}


def page(openapi: Mapping[str, Any]) -> str:
    return "".join(_page(openapi))


def _page(openapi: Mapping[str, Any]) -> Iterator[str]:
    schemas = openapi["components"]["schemas"]
    yield "# Operations\n\n" + paragraph(_INTRODUCTION)
    for tag in openapi["tags"]:
        yield f"## {tag['name'].capitalize()}\n\n" + paragraph(tag["description"])
        for path, methods in openapi["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation.get("tags", ()):
                    yield from _operation(schemas, f"{method.upper()} {path}", operation)
    yield "## See also\n\n- [The API](api.md): login, errors, lists\n- [gatewayctl](gatewayctl.md)\n"


def _operation(schemas: Mapping[str, Any], title: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {title}\n\n"
    yield paragraph(operation["summary"] + "\n\n" + operation.get("description", ""))
    parameters = [
        (code(each["name"]), _type(schemas, each["schema"]), each["description"])
        for each in operation.get("parameters", ())
        if each.get("in") in ("path", "query")
    ]
    yield from _titled("Parameters", parameters)
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    yield from _titled("Request", _fields(schemas, body))
    yield from _titled("Response", _fields(schemas, _data(operation)))


def _titled(title: str, rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    if text := table((title, *_HEAD[1:]), rows):
        yield text + "\n"


def _data(operation: Mapping[str, Any]) -> Any:
    """The schema of a success without its envelope; None without one."""
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            schema = response.get("content", {}).get("application/json", {}).get("schema", {})
            return schema.get("properties", {}).get("data", schema) or None
    return None


def _fields(schemas: Mapping[str, Any], schema: Any) -> Iterator[tuple[str, str, str]]:
    resolved = _resolved(schemas, schema or {})
    required = resolved.get("required", ())
    for name, inner in resolved.get("properties", {}).items():
        described = _resolved(schemas, inner)
        optional = "" if name in required else "; optional"
        yield code(name), _type(schemas, inner) + optional, described.get("description", "")


def _type(schemas: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    resolved = _resolved(schemas, schema)
    if choices := resolved.get("enum"):
        shown = ", ".join(code(str(each)) for each in choices[:_SHOWN])
        return shown + (", ..." if len(choices) > _SHOWN else "")
    if options := resolved.get("anyOf") or resolved.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(schemas, each) for each in options))
    kind = _FORMATS.get(resolved.get("format", "")) or resolved.get("type", "value")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(schemas, resolved.get('items', {}))}"
    if kind == "object" and "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if kind == "integer" and "minimum" in resolved and "maximum" in resolved:
        return f"integer, {resolved['minimum']} to {resolved['maximum']}"
    return str(kind)


def _resolved(schemas: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return {**schemas.get(name, {}), **schema}
