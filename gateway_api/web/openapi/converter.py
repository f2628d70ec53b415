"""JSON Schema of requests, which are schemas of marshmallow, and of responses, which are structs."""

from collections.abc import Iterable
from typing import Any

import msgspec
from apispec.ext.marshmallow import MarshmallowPlugin
from apispec.ext.marshmallow.openapi import OpenAPIConverter
from marshmallow.fields import Field

from gateway_api.base.fields import Parsed, Schema

_REFERENCE = "#/components/schemas/{name}"


class _Converter(OpenAPIConverter):
    field_mapping = {**OpenAPIConverter.field_mapping, Parsed: ("string", None)}

    def field2default(self, field: Field[Any], **more: Any) -> dict[str, Any]:
        made = super().field2default(field, **more)
        # None is what a view gets where nothing was sent, not something to send.
        return {} if made.get("default", 0) is None else made

    def field2choices(self, field: Field[Any], **more: Any) -> dict[str, Any]:
        made = super().field2choices(field, **more)
        choices = made.get("enum", ())
        return {"const": choices[0]} if len(choices) == 1 else made

    def schema2jsonschema(self, schema: Any) -> dict[str, Any]:
        made: dict[str, Any] = super().schema2jsonschema(schema)  # type: ignore[no-untyped-call]
        # What rules of more than one field say.
        made.update(getattr(schema, "json_schema", {}))
        return made


class _Plugin(MarshmallowPlugin):
    Converter = _Converter


def _name_of(schema: Any) -> str:
    return (schema if isinstance(schema, type) else type(schema)).__name__


def components(records: Iterable[type[msgspec.Struct]]) -> dict[str, dict[str, Any]]:
    """The schemas of records, and of all that they refer to, by their names."""
    _, made = msgspec.json.schema_components(records, ref_template=_REFERENCE)
    for schema in made.values():
        schema["description"] = " ".join(schema["description"].split())
        if "enum" in schema:
            schema["type"] = "string"
        for name, described in schema.get("properties", {}).items():
            # A default is for readers on the wire. A response has every field that may not be absent.
            if "default" in described:
                del described["default"]
                schema["required"] = [*schema.get("required", ()), name]
    return made


def reference_to(record: type[msgspec.Struct]) -> dict[str, str]:
    """A reference to the component of a record."""
    return {"$ref": _REFERENCE.format(name=record.__name__)}


def plugin() -> MarshmallowPlugin:
    """For one document: it keeps what it has named."""
    return _Plugin(schema_name_resolver=_name_of)


def reference(converter: OpenAPIConverter, schema: type[Schema]) -> dict[str, Any]:
    """A reference to the schema, which is among the document's components from now on."""
    made: dict[str, Any] = converter.resolve_nested_schema(schema)  # type: ignore[no-untyped-call]
    return made
