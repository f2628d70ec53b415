"""The AsyncAPI document of the relay: valid for others, and true for the examples of its page."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway_relay.messages import SUBJECTS
from tests.support import npm
from tests.support.manual import DOCS

DOCUMENT = json.loads((DOCS.parent / "etc" / "asyncapi.json").read_text())
PAGE = (DOCS / "reference" / "relay.md").read_text()
EXAMPLES = dict(
    re.findall(r"^`gw\.bng1\.([\w.]+)`[^\n]*\n\n```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)


def find_schema(subject: str) -> str:
    """Return the reference to the schema of the body of a subject."""
    ((name, _),) = DOCUMENT["channels"][subject.rpartition(".")[2]]["messages"].items()
    return str(DOCUMENT["components"]["messages"][name]["payload"]["$ref"])


def find_errors(subject: str, body: Any) -> list[str]:
    """Return what the schema of a subject has against a body."""
    schema = {"$ref": find_schema(subject), "components": DOCUMENT["components"]}
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(body)]


def test_the_document_is_valid(tmp_path: Path) -> None:
    npm.installed(tmp_path, "@asyncapi/specs@6.8.1")
    schema = json.loads((tmp_path / "node_modules/@asyncapi/specs/schemas/3.0.0.json").read_text())
    jsonschema.Draft7Validator(schema).validate(DOCUMENT)


def test_the_page_has_an_example_of_each_subject() -> None:
    assert list(EXAMPLES) == list(SUBJECTS)
    addresses = {channel["address"] for channel in DOCUMENT["channels"].values()}
    assert addresses == {f"gw.{{gateway}}.{subject}" for subject in SUBJECTS}
    assert set(re.findall(r"^\| `gw\.NAME\.([\w.]+)` \|", PAGE, re.MULTILINE)) == set(SUBJECTS)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_an_example_has_the_fields_of_its_schema_and_no_others(subject: str) -> None:
    example = json.loads(EXAMPLES[subject])
    assert find_errors(subject, example) == []
    name = find_schema(subject).rpartition("/")[2]
    assert example.keys() <= DOCUMENT["components"]["schemas"][name]["properties"].keys()
    assert find_errors(subject, {}) != []
