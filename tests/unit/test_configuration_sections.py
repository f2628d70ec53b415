"""What clients read of the fields of the configuration is what the core checks."""

import json
from collections.abc import Iterator
from typing import Any

import marshmallow
import msgspec
import pytest
from marshmallow import validate
from marshmallow.fields import List, Nested

from gateway_api.core.configuration.sections import ROOT
from gateway_api.web.configuration_sections import Configuration

_, _SCHEMAS = msgspec.json.schema_components([Configuration], ref_template="{name}")


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of what a field holds, when it holds something."""
    for choice in schema.get("anyOf", ()):
        if choice != {"type": "null"}:
            schema = {**schema, **choice}
    return {**_SCHEMAS[schema["$ref"]], **schema} if "$ref" in schema else schema


def fields(checked: Any, described: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any, Any]]:
    """Each field by its path: of the core, its schema, and whether it is required."""
    if isinstance(checked, Nested):
        held = resolved(described)
        assert set(checked.schema.fields) == set(held["properties"]), path
        for name, field in checked.schema.fields.items():
            below = f"{path}.{name}".lstrip(".")
            yield below, field, held["properties"][name], name in held.get("required", ())
            yield from fields(field, held["properties"][name], below)
    elif isinstance(checked, List):
        yield from fields(checked.inner, resolved(described)["items"], f"{path}[]")


FIELDS = {path: found for path, *found in fields(ROOT, {"$ref": "Configuration"})}


def limits(field: Any) -> dict[str, Any]:
    """The range of numbers and the length of lists, in the words of JSON Schema."""
    found: dict[str, Any] = {}
    for rule in field.validators:
        if isinstance(rule, validate.Range):
            found |= {"minimum": rule.min, "maximum": rule.max}
        if isinstance(rule, validate.Length) and isinstance(field, List) and rule.max:
            found |= {"maxItems": rule.max}
    return found


@pytest.mark.parametrize("path", FIELDS)
def test_a_field_has_the_range_that_the_core_checks(path: str) -> None:
    field, described, _ = FIELDS[path]
    stated = {name: described[name] for name in ("minimum", "maximum", "maxItems") if name in described}
    assert stated == limits(field)


@pytest.mark.parametrize("path", FIELDS)
def test_a_field_has_the_choices_that_the_core_checks(path: str) -> None:
    field, described, _ = FIELDS[path]
    choices = [set(rule.choices) for rule in field.validators if isinstance(rule, validate.OneOf)]
    # The overhead profiles are a list of their own in the API.
    if choices and path != "demux.vlan_profiles[].overhead_profile":
        assert [set(resolved(described)["enum"])] == choices
    nullable = {"type": "null"} in described.get("anyOf", ())
    assert nullable == field.allow_none


@pytest.mark.parametrize("path", FIELDS)
def test_a_field_that_may_be_left_out_has_the_default_of_the_core(path: str) -> None:
    field, described, required = FIELDS[path]
    assert required == field.required
    if field.load_default is marshmallow.missing or isinstance(field, Nested):
        return
    default = field.load_default
    plain = list(default) if isinstance(default, tuple) else default
    spelled = plain if isinstance(plain, int | list | None) else str(plain)
    assert described["description"].endswith(f"Default: {json.dumps(spelled)}.")


@pytest.mark.parametrize("path", FIELDS)
def test_a_field_has_a_description(path: str) -> None:
    assert resolved(FIELDS[path][1])["description"]
