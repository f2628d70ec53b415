"""What the OpenAPI document says of a field, kept where the field is."""

from typing import Any


def says(description: str, example: Any, **more: Any) -> dict[str, Any]:
    """A field's `metadata`: a sentence, with the unit if there is one, and a value as it goes over the wire;
    `more` is JSON Schema, for what marshmallow's validators don't tell (OpenAPI 3.1 section 4.8.24)."""
    return {"description": description, "examples": [example], **more}
