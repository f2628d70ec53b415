"""The definition of the configuration: what a new leaf must have."""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from gateway_api.audit import record
from gateway_contract import configuration
from gateway_contract.base.logs import MASK, is_secret
from gateway_contract.configuration import (
    KEYS,
    ROOT,
    Field,
    Leaf,
    ListOf,
    Object,
    Section,
    mask_path,
    mask_secrets,
    walk,
)
from gateway_contract.contract import about
from gateway_contract.core.configuration import Edit, EditAction
from gateway_core.configuration import documents
from gateway_core.configuration.documents import compare, edit, format_diff, unmask

FIELDS = {path: field for path, field in walk(ROOT) if path}


@pytest.mark.parametrize("path", [path for path in FIELDS if is_secret(path)])
def test_what_has_the_name_of_a_secret_is_declared_secret(path: str) -> None:
    assert FIELDS[path].secret


@pytest.mark.parametrize("path", [path for path, field in FIELDS.items() if not field.required])
def test_a_default_is_valid(path: str) -> None:
    field = FIELDS[path]
    if isinstance(field.kind, Leaf) and field.default is not None:
        assert field.kind.load(msgspec.json.decode(field.default_json)) == field.default
    elif isinstance(field.kind, ListOf):
        items = msgspec.json.decode(field.default_json)
        kind = field.item.kind
        assert not items or isinstance(kind, Leaf)
        assert tuple(kind.load(item) for item in items) == field.default
    elif field.default is None:
        assert field.nullable
    else:
        assert all(not below.required for below in field.members.values())


@pytest.mark.parametrize("path", ["", *FIELDS])
def test_the_key_of_a_list_is_the_one_field_of_its_items_with_the_name_of_a_key(path: str) -> None:
    # gatewayctl and the page find the key of an item by the names of all keys.
    field = FIELDS.get(path, ROOT)
    assert KEYS & set(field.item.members) == ({field.key} if field.key else set())


@dataclass(frozen=True)
class Snmp(Section):
    """A section with a secret whose name does not tell it."""

    community: Annotated[str, Leaf(), about("Community.", MASK, **{"x-secret": True})]


@dataclass(frozen=True)
class Whole(Section):
    """A document."""

    snmp: Snmp


@pytest.fixture
def _with_snmp(monkeypatch: pytest.MonkeyPatch) -> Field:
    root = Field(Object(Whole))
    for module in (configuration, documents):
        monkeypatch.setattr(module, "ROOT", root)
    return root


def test_what_is_declared_secret_is_masked_whatever_its_name(_with_snmp: Field) -> None:
    before, after = ({"snmp": {"community": text}} for text in ("old-one", "new-one"))
    hidden: Any = {"snmp": {"community": MASK}}
    assert mask_secrets(after, _with_snmp) == hidden
    assert format_diff(compare(before, after)) == f"- snmp.community = {MASK}\n+ snmp.community = {MASK}\n"
    assert unmask(hidden, before) == before
    for path, value in (("snmp.community", "new-one"), ("snmp", after["snmp"])):
        made, (change,) = edit(before, [Edit(EditAction.SET, path, value)])
        assert made == after
        assert "one" not in f"{change.before_json} {change.after_json}"
        assert "one" not in str(record.mask_secrets({"path": path, "value": value}))
    text = '{"community": "new-one"}'
    assert "one" not in str(record.mask_secrets({"path": "snmp", "value": text}))
    assert mask_path("snmp.community.new-one") == f"snmp.community.{MASK}"
