"""Pages of the reference that are derived from the OpenAPI document, in MyST Markdown: a list of all
operations with their errors, and for each subject its operations and records, which the page of the subject
includes."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tools.documents.pages import format_cell, join_paragraphs

#: The page of each tag.
PAGE_BY_TAG = {
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
_COMMON_ERRORS = """
An unknown path gets 404, and a method that the path does not have gets 405. All other errors are in the list
of each operation.
"""
#: Units of numbers, by a part of the name or the description. The first one that is found counts.
_UNIT_PATTERNS = (
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
#: Highest number of values of an enumeration, and highest length of an example, that are shown.
_MAX_SHOWN_VALUES, _LONGEST_EXAMPLE = 6, 60
_FORMAT_NAMES = {"ipv4": "IPv4 address", "ipv6": "IPv6 address"}
#: The columns after the name. A table leaves out those that are empty in each of its rows.
_TABLE_HEAD = ("meaning", "type", "unit", "may be", "range", "example")

Schema = Mapping[str, Any]


def generate_pages(document: Mapping[str, Any]) -> dict[str, Iterator[str]]:
    """Return a map from page name to text. A page name is a path below `docs/reference`, without `.md`."""
    reference = _Reference(document)
    return {
        "operations": reference.generate_index(),
        **{
            f"operations/{page}": reference.generate_subject(page)
            for page in dict.fromkeys(PAGE_BY_TAG.values())
        },
    }


class _Reference:
    """Generator of the pages for one OpenAPI document."""

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
                            page = PAGE_BY_TAG[tag["name"]]
                            self._operations.setdefault(page, []).append((title, operation))
        #: The page of each record: the first one that has it.
        self._page_by_record: dict[str, str] = {}
        for page, operations in self._operations.items():
            for _, operation in operations:
                for name in self._list_records(operation):
                    self._page_by_record.setdefault(name, page)
        for name in self._list_records(document["components"]["responses"]):
            self._page_by_record.setdefault(name, "operations")

    def generate_index(self) -> Iterator[str]:
        yield "# Operations\n\n" + format_paragraph(_INTRODUCTION)
        rows = (
            (f"[{title}]({page}.md#{_make_anchor(title)})", _describe_role(operation), operation["summary"])
            for page, operations in self._operations.items()
            for title, operation in operations
        )
        yield format_table(("operation", "requires", "function"), rows) + "\n"
        yield "## Errors\n\n" + format_paragraph(_COMMON_ERRORS)
        statuses: dict[str, tuple[str, str]] = {}
        for methods in self._document["paths"].values():
            for operation in methods.values():
                for status, response in operation["responses"].items():
                    if status[0] in "45":
                        statuses[status] = self._describe_error(response)
        yield format_table(
            ("status", "reason", "body"), ((format_code(each), *statuses[each]) for each in sorted(statuses))
        )
        yield from self._generate_records("operations")
        yield "## See also\n\n- [The API](api.md): login, errors, lists\n- [gatewayctl](gatewayctl.md)\n"

    def generate_subject(self, page: str) -> Iterator[str]:
        yield "## Operations\n\n"
        for title, operation in self._operations[page]:
            yield from self._generate_operation(page, title, operation)
        yield from self._generate_records(page)

    def _generate_operation(self, page: str, title: str, operation: Mapping[str, Any]) -> Iterator[str]:
        yield f"### {title}\n\n"
        yield format_paragraph(operation["summary"] + "\n\n" + operation.get("description", ""))
        parameters = [
            (format_code(each["name"]), *self._format_cells(page, each, each.get("required", False)))
            for each in operation.get("parameters", ())
            if each.get("in") in ("path", "query")
        ]
        if parameters:
            yield _format_field_table("parameter", parameters) + "\n"
        facts = []
        if (
            body := operation.get("requestBody", {})
            .get("content", {})
            .get("application/json", {})
            .get("schema")
        ):
            facts.append(f"Request: {self._describe_type(page, body)}.")
        for status, response in operation["responses"].items():
            if status[0] == "2" and (data := _find_data(response)):
                facts.append(f"Response {status}: {self._describe_type(page, data)}.")
        errors = [status for status in operation["responses"] if status[0] in "45"]
        if errors:
            facts.append(f"[Errors](operations.md#errors): {', '.join(errors)}.")
        if facts:
            yield " ".join(facts) + "\n\n"

    def _generate_records(self, page: str) -> Iterator[str]:
        names = sorted(name for name, record_page in self._page_by_record.items() if record_page == page)
        if names:
            yield "## Records\n\n"
        for name in names:
            schema = self._schemas[name]
            yield f"### {name}\n\n" + format_paragraph(schema.get("description", ""))
            required = schema.get("required", ())
            rows = [
                (
                    format_code(field),
                    *self._format_cells(page, {"name": field, "schema": inner}, field in required),
                )
                for field, inner in schema["properties"].items()
            ]
            yield _format_field_table("field", rows) + "\n"

    def _format_cells(self, page: str, described: Mapping[str, Any], required: bool) -> Sequence[str]:
        """Return the table cells that follow the name of a field or parameter: the meaning, the type, the
        unit, the absent values, the range and an example. `described` is the Parameter Object, or an object
        with the schema of the field. `page` is the page that contains the table."""
        schema = self._resolve(described["schema"])
        name = described.get("name", "")
        meaning = described.get("description") or schema.get("description", "")
        kinds = [self._resolve(each) for each in _list_kinds(schema)] or [schema]
        is_number = any(each.get("type") in ("integer", "number") for each in kinds)
        absent = [text for text, holds in (("null", _is_nullable(schema)), ("absent", not required)) if holds]
        return (
            meaning,
            self._describe_type(page, described["schema"]),
            _find_unit(name, schema, meaning) if is_number else "",
            ", ".join(absent),
            _describe_range({**kinds[0], **schema}),
            _format_example(schema),
        )

    def _describe_type(self, page: str, schema: Schema) -> str:
        whole = self._resolve(schema)
        name = schema.get("$ref", "").rpartition("/")[2]
        if choices := [each for each in whole.get("enum", ()) if each is not None]:
            texts = ", ".join(format_code(str(each)) for each in choices[:_MAX_SHOWN_VALUES])
            return texts + (", ..." if len(choices) > _MAX_SHOWN_VALUES else "")
        if name and "properties" in whole:
            record_page = self._page_by_record[name]
            return f"[{name}]({'' if record_page == page else f'{record_page}.md'}#{_make_anchor(name)})"
        if whole.get("format") in _FORMAT_NAMES:
            return _FORMAT_NAMES[whole["format"]]
        if kinds := _list_kinds(whole):
            return " or ".join(dict.fromkeys(self._describe_type(page, each) for each in kinds))
        if "const" in whole:
            return format_code(json.dumps(whole["const"]))
        kind = whole.get("type", "value")
        if isinstance(kind, list):
            return " or ".join(kind)
        return (
            f"list of {self._describe_type(page, whole.get('items', {}))}" if kind == "array" else str(kind)
        )

    def _resolve(self, schema: Schema) -> dict[str, Any]:
        """Return a schema. If the schema has a `$ref`, merge the schema with the schema to which the `$ref`
        points."""
        name = schema.get("$ref", "").rpartition("/")[2]
        return {**self._schemas.get(name, {}), **schema}

    def _describe_error(self, response: Mapping[str, Any]) -> tuple[str, str]:
        named = self._document["components"]["responses"].get(response.get("$ref", "").rpartition("/")[2], {})
        whole = {**named, **response}
        schema = whole.get("content", {}).get("application/json", {}).get("schema", {})
        return whole["description"], self._describe_type("operations", schema) if schema else ""

    def _list_records(self, part: Any) -> Iterator[str]:
        """Yield the names of all records to which a part of the document refers, directly or through other
        records."""
        if isinstance(part, Mapping):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if str(part.get("$ref", "")).startswith("#/components/schemas/"):
                if "properties" in self._schemas[name]:
                    yield name
                yield from self._list_records(self._schemas[name])
            for inner in part.values():
                yield from self._list_records(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from self._list_records(inner)


def _format_field_table(title: str, rows: Sequence[Sequence[str]]) -> str:
    head = (title, *_TABLE_HEAD)
    used_columns = [column for column in range(len(head)) if any(row[column] for row in rows)]
    return format_table(
        [head[column] for column in used_columns], ([row[column] for column in used_columns] for row in rows)
    )


def _find_data(response: Mapping[str, Any]) -> Any:
    """Return the schema of the data in a successful response, without the envelope. Return None if the
    response has no data."""
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return schema.get("properties", {}).get("data", schema) or None


def _describe_role(operation: Mapping[str, Any]) -> str:
    roles = operation.get("x-roles")
    return "nothing" if roles is None else "admin" if roles == ["admin"] else "a token"


def _list_kinds(schema: Schema) -> list[Schema]:
    """Return the alternatives of a schema (`anyOf` or `oneOf`) without the type null. The list is empty if
    there are no alternatives."""
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


def _find_unit(name: str, schema: Schema, meaning: str) -> str:
    text = f"{name} {meaning}".lower()
    return schema.get("x-unit") or next((unit for form, unit in _UNIT_PATTERNS if re.search(form, text)), "")


def _describe_range(schema: Schema) -> str:
    """Return a text with the minimum and maximum of a value, of the length of a text, or of the number of
    items of a list. The text is empty if the schema has no such limits."""
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


def _format_example(schema: Schema) -> str:
    """Return the first example of a schema as text. The first examples of a record's fields match each
    other."""
    if not (examples := schema.get("examples")):
        return ""
    text = examples[0] if isinstance(examples[0], str) else json.dumps(examples[0], ensure_ascii=False)
    return format_code(text) if len(text) <= _LONGEST_EXAMPLE else ""


def _make_anchor(title: str) -> str:
    """Return the anchor that MyST and GitHub generate for a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with the given head and rows, or an empty text if there are no rows."""
    lines = [_format_row(row) for row in rows]
    return "".join([_format_row(head), _format_row(["---"] * len(head)), *lines]) if lines else ""


def format_code(text: str) -> str:
    return f"`{text}`" if text else ""


def format_paragraph(text: str) -> str:
    return f"{join_paragraphs(text)}\n\n"


def _format_row(cells: Sequence[str]) -> str:
    return "".join(f"| {format_cell(cell)} " for cell in cells) + "|\n"
