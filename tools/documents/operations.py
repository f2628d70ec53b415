"""Pages of the reference from the OpenAPI document, in MyST Markdown: the list of all operations with the
errors, and for each page of a subject its operations and records. The page of the subject includes them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tools.documents.pages import format_cell, join_paragraphs

#: The page of each tag.
PAGES = {
    "login": "api",
    "docs": "api",
    "subscribers": "subscribers",
    "jobs": "subscribers",
    "traffic": "subscribers",
    "history": "history",
    "system": "system",
    "configuration": "configuration-api",
    "interfaces": "network",
    "qos": "network",
    "routing": "network",
    "cgnat": "network",
    "demux": "network",
    "events": "events",
    "webhooks": "webhooks",
    "deliveries": "webhooks",
    "audit": "audit",
    "metrics": "metrics",
}
_INTRODUCTION = """
The page of an operation has its parameters, request, response and errors, and the records in them. The
examples of sessions, rates, routes and interfaces come from a running gateway: session 7 of the lab that
`make run` starts. `/api/v1/docs` on a gateway can send the requests.
"""
_ERRORS = """
An unknown path gets 404, and a method that the path does not have gets 405. All other errors are in the list
of each operation.
"""
#: Units of numbers, by a part of the name or the description. The first one that is found counts.
_UNITS = (
    (r"^\w*(_at|_after|_before|_until|_since|deadline) |^(at|since) |epoch seconds", "epoch seconds"),
    (r"milliseconds|_ms ", "ms"),
    (r"bits per second|_bps ", "bit/s"),
    (r"packets per second|_pps ", "packets/s"),
    (r"sessions per second", "sessions/s"),
    (r"vlans_per_second", "VLANs/s"),
    (r"\bseconds\b", "s"),
    (r"\bmib\b", "MiB"),
    (r"\bbytes\b", "bytes"),
    (r"\bpackets\b", "packets"),
    (r"\bpercent\b", "%"),
    (r"\bdays\b", "days"),
    (r"\bbits\b|length of each", "bits"),
)
#: Of so many values the first ones are shown, and no longer example.
_SHOWN, _LONGEST_EXAMPLE = 6, 60
_FORMATS = {"ipv4": "IPv4 address", "ipv6": "IPv6 address"}
#: The columns after the name. A table leaves out those that are empty in each of its rows.
_HEAD = ("meaning", "type", "unit", "may be", "range", "example")

Schema = Mapping[str, Any]


def pages(document: Mapping[str, Any]) -> dict[str, Iterator[str]]:
    """Return the pages by their names below `docs/reference`, without `.md`."""
    reference = _Reference(document)
    return {
        "operations": reference.index(),
        **{f"operations/{page}": reference.subject(page) for page in dict.fromkeys(PAGES.values())},
    }


class _Reference:
    """An OpenAPI document as pages."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._schemas = document["components"]["schemas"]
        #: Titles and operations of each page, in the order of the tags.
        self._operations: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
        for tag in document["tags"]:
            for where in ("paths", "webhooks"):
                for path, methods in document[where].items():
                    for method, operation in methods.items():
                        if tag["name"] in operation.get("tags", ()):
                            title = f"{method.upper()} {path}" if where == "paths" else f"Webhook {path}"
                            page = PAGES[tag["name"]]
                            self._operations.setdefault(page, []).append((title, operation))
        #: The page of each record: the first one that has it.
        self._home: dict[str, str] = {}
        for page, operations in self._operations.items():
            for _, operation in operations:
                for name in self._records_of(operation):
                    self._home.setdefault(name, page)
        for name in self._records_of(document["components"]["responses"]):
            self._home.setdefault(name, "operations")

    def index(self) -> Iterator[str]:
        yield "# Operations\n\n" + paragraph(_INTRODUCTION)
        rows = (
            (f"[{title}]({page}.md#{_slug(title)})", _role(operation), operation["summary"])
            for page, operations in self._operations.items()
            for title, operation in operations
        )
        yield table(("operation", "requires", "function"), rows) + "\n"
        yield "## Errors\n\n" + paragraph(_ERRORS)
        statuses: dict[str, tuple[str, str]] = {}
        for methods in self._document["paths"].values():
            for operation in methods.values():
                for status, response in operation["responses"].items():
                    if status[0] in "45":
                        statuses[status] = self._error(response)
        yield table(
            ("status", "reason", "body"), ((code(each), *statuses[each]) for each in sorted(statuses))
        )
        yield from self._records("operations")
        yield "## See also\n\n- [The API](api.md): login, errors, lists\n- [gatewayctl](gatewayctl.md)\n"

    def subject(self, page: str) -> Iterator[str]:
        yield "## Operations\n\n"
        for title, operation in self._operations[page]:
            yield from self._operation(page, title, operation)
        yield from self._records(page)

    def _operation(self, page: str, title: str, operation: Mapping[str, Any]) -> Iterator[str]:
        yield f"### {title}\n\n"
        yield paragraph(operation["summary"] + "\n\n" + operation.get("description", ""))
        parameters = [
            (code(each["name"]), *self._cells(page, each, each.get("required", False)))
            for each in operation.get("parameters", ())
            if each.get("in") in ("path", "query")
        ]
        if parameters:
            yield _table("parameter", parameters) + "\n"
        facts = []
        if (
            body := operation.get("requestBody", {})
            .get("content", {})
            .get("application/json", {})
            .get("schema")
        ):
            facts.append(f"Request: {self._type(page, body)}.")
        for status, response in operation["responses"].items():
            if status[0] == "2" and (data := _data(response)):
                facts.append(f"Response {status}: {self._type(page, data)}.")
        errors = [status for status in operation["responses"] if status[0] in "45"]
        if errors:
            facts.append(f"[Errors](operations.md#errors): {', '.join(errors)}.")
        if facts:
            yield " ".join(facts) + "\n\n"

    def _records(self, page: str) -> Iterator[str]:
        names = sorted(name for name, home in self._home.items() if home == page)
        if names:
            yield "## Records\n\n"
        for name in names:
            schema = self._schemas[name]
            yield f"### {name}\n\n" + paragraph(schema.get("description", ""))
            required = schema.get("required", ())
            rows = [
                (code(field), *self._cells(page, {"name": field, "schema": inner}, field in required))
                for field, inner in schema["properties"].items()
            ]
            yield _table("field", rows) + "\n"

    def _cells(self, page: str, described: Mapping[str, Any], required: bool) -> Sequence[str]:
        """Return the cells of a field or parameter, after its name."""
        schema = self._whole(described["schema"])
        name = described.get("name", "")
        meaning = described.get("description") or schema.get("description", "")
        kinds = [self._whole(each) for each in _kinds(schema)] or [schema]
        is_number = any(each.get("type") in ("integer", "number") for each in kinds)
        absent = [text for text, holds in (("null", _is_nullable(schema)), ("absent", not required)) if holds]
        return (
            meaning,
            self._type(page, described["schema"]),
            _unit(name, schema, meaning) if is_number else "",
            ", ".join(absent),
            _range({**kinds[0], **schema}),
            _example(schema),
        )

    def _type(self, page: str, schema: Schema) -> str:
        whole = self._whole(schema)
        name = schema.get("$ref", "").rpartition("/")[2]
        if choices := [each for each in whole.get("enum", ()) if each is not None]:
            shown = ", ".join(code(str(each)) for each in choices[:_SHOWN])
            return shown + (", ..." if len(choices) > _SHOWN else "")
        if name and "properties" in whole:
            home = self._home[name]
            return f"[{name}]({'' if home == page else f'{home}.md'}#{_slug(name)})"
        if whole.get("format") in _FORMATS:
            return _FORMATS[whole["format"]]
        if kinds := _kinds(whole):
            return " or ".join(dict.fromkeys(self._type(page, each) for each in kinds))
        if "const" in whole:
            return code(json.dumps(whole["const"]))
        kind = whole.get("type", "value")
        if isinstance(kind, list):
            return " or ".join(kind)
        return f"list of {self._type(page, whole.get('items', {}))}" if kind == "array" else str(kind)

    def _whole(self, schema: Schema) -> dict[str, Any]:
        """Return the schema with the fields of the one that it refers to."""
        name = schema.get("$ref", "").rpartition("/")[2]
        return {**self._schemas.get(name, {}), **schema}

    def _error(self, response: Mapping[str, Any]) -> tuple[str, str]:
        named = self._document["components"]["responses"].get(response.get("$ref", "").rpartition("/")[2], {})
        whole = {**named, **response}
        schema = whole.get("content", {}).get("application/json", {}).get("schema", {})
        return whole["description"], self._type("operations", schema) if schema else ""

    def _records_of(self, part: Any) -> Iterator[str]:
        """Return the names of the records in a part of the document, and of those in these records."""
        if isinstance(part, Mapping):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if str(part.get("$ref", "")).startswith("#/components/schemas/"):
                if "properties" in self._schemas[name]:
                    yield name
                yield from self._records_of(self._schemas[name])
            for inner in part.values():
                yield from self._records_of(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from self._records_of(inner)


def _table(title: str, rows: Sequence[Sequence[str]]) -> str:
    head = (title, *_HEAD)
    shown = [place for place in range(len(head)) if any(row[place] for row in rows)]
    return table([head[place] for place in shown], ([row[place] for place in shown] for row in rows))


def _data(response: Mapping[str, Any]) -> Any:
    """Return the schema of a success without its envelope; None without one."""
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return schema.get("properties", {}).get("data", schema) or None


def _role(operation: Mapping[str, Any]) -> str:
    roles = operation.get("x-roles")
    return "nothing" if roles is None else "admin" if roles == ["admin"] else "a token"


def _kinds(schema: Schema) -> list[Schema]:
    """Return the alternatives of a schema without null."""
    alternatives = schema.get("anyOf") or schema.get("oneOf") or ()
    return [each for each in alternatives if each.get("type") != "null"]


def _is_nullable(schema: Schema) -> bool:
    if None in schema.get("enum", ()):
        return True
    kinds = [schema, *(schema.get("anyOf") or schema.get("oneOf") or ())]
    return any(
        "null" in ([each["type"]] if isinstance(each.get("type"), str) else each.get("type", ()))
        for each in kinds
    )


def _unit(name: str, schema: Schema, meaning: str) -> str:
    text = f"{name} {meaning}".lower()
    return schema.get("x-unit") or next((unit for form, unit in _UNITS if re.search(form, text)), "")


def _range(schema: Schema) -> str:
    """Return the smallest and the largest value, or the limits of the length."""
    for ends, noun in (
        (("minimum", "maximum"), ""),
        (("minLength", "maxLength"), " characters"),
        (("minItems", "maxItems"), " items"),
    ):
        least, most = (schema.get(end) for end in ends)
        if least is not None and most is not None:
            return f"{least} to {most}{noun}"
        if most is not None:
            return f"at most {most}{noun}"
        if least is not None:
            return f"{least} or more{noun}"
    return ""


def _example(schema: Schema) -> str:
    """Return the first example, which those of the other fields of the record fit."""
    if not (examples := schema.get("examples")):
        return ""
    text = examples[0] if isinstance(examples[0], str) else json.dumps(examples[0], ensure_ascii=False)
    return code(text) if len(text) <= _LONGEST_EXAMPLE else ""


def _slug(title: str) -> str:
    """Return the anchor of a heading, as MyST and GitHub make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; empty without rows."""
    lines = [_row(row) for row in rows]
    return "".join([_row(head), _row(["---"] * len(head)), *lines]) if lines else ""


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def paragraph(text: str) -> str:
    return f"{join_paragraphs(text)}\n\n"


def _row(cells: Sequence[str]) -> str:
    return "".join(f"| {format_cell(cell)} " for cell in cells) + "|\n"
