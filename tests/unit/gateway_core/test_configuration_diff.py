"""What is said to differ between two configurations."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_contract.base.logs import MASK
from gateway_contract.base.texts import format_path
from gateway_contract.core.configuration import Edit
from gateway_core.configuration.documents import Change, OperationRefused, compare, edit, format_diff
from tests.support.documents import FACTORY, put, remove, valid_document

enough = settings(max_examples=50)

#: An operation each, that can be done in any order, on anything.
EDITS = [
    *[("system.hostname", name) for name in ("bng1", "bng2")],
    *[("radius.secret", secret) for secret in (None, "hunter2", "hunter3")],
    *[("radius.server", server) for server in (None, "10.0.0.1")],
    *[("radius.accounting_port", number) for number in (1813, 1)],
    *[("cgnat.enabled", flag) for flag in (True, False)],
    *[("interfaces.trunks", names) for names in ([], ["a"], ["a", "b"], ["b", "a"], ["a.b"])],
    *[("demux.vlan_profiles", items) for items in ([], [{"name": "a"}], [{"name": "b"}, {"name": "a"}])],
    *[(f"demux.vlan_profiles.{name}.type", kind) for name in "abc" for kind in ("pppoe", "dhcp")],
    ("demux.vlan_profiles.a.outer_vlan_range", None),
    *[("demux.rate_limits", limits) for limits in ({}, {"burst": 1}, {"burst": 1, "max_vlans": 1})],
    *[("bgp", bgp) for bgp in (None, {}, {"neighbors": []}, {"as_number": 1})],
    *[(f'bgp.neighbors."10.0.0.{number}".remote_as', number) for number in (1, 2, 3)],
    *[("subscribers", section) for section in ({}, {"local": []})],
    *[(f'subscribers.local."{name}".password', f"hunter{name}") for name in ("4", "a@b", "c")],
    *[(f'subscribers.local."{name}".password', "hunter5") for name in ("4", "a@b", "c")],
]
DELETIONS = [
    *("system", "radius", "interfaces", "bgp", "subscribers", "demux", "radius.secret", "bgp.neighbors"),
    *("subscribers.local.0", "demux.vlan_profiles.0", "demux.vlan_profiles.a", "demux.vlan_profiles.b.type"),
    *("interfaces.trunks.0", "bgp.neighbors.0", "subscribers.local", "demux.rate_limits.burst"),
]
operations = st.lists(
    st.sampled_from(EDITS).map(lambda edit: Edit("set", *edit))
    | st.sampled_from(DELETIONS).map(lambda path: Edit("delete", path)),
    max_size=12,
)


def after(document: dict[str, Any], done: list[Edit]) -> dict[str, Any]:
    """The document after those operations that can be done."""
    for operation in done:
        try:
            document, _ = edit(document, [operation])
        except OperationRefused:
            continue
    return document


documents = operations.map(lambda done: after(json.loads(FACTORY.read_text()), done))


def lines(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    text = format_diff(compare(before, now))
    assert text == "" or text.endswith("\n")
    return text.splitlines()


def shuffled(value: Any) -> Any:
    """The same with the fields of all objects in the reverse order."""
    if isinstance(value, dict):
        return {key: shuffled(held) for key, held in reversed(value.items())}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


CORE1, CORE2 = valid_document()["bgp"]["neighbors"]

#: A line for each value of the section.
BGP = [
    "bgp.as_number = 64512",
    *(
        f'bgp.neighbors."{address}".{value}'
        for address, description in (("10.255.0.2", "core1"), ("10.255.0.6", "core2"))
        for value in (f'address = "{address}"', f'description = "{description}"', "remote_as = 64513")
    ),
    'bgp.router_id = "10.255.0.1"',
]


@pytest.fixture
def document(document: dict[str, Any]) -> dict[str, Any]:
    """With local subscribers, one of which has a password."""
    local = [{"username": "a", "password": "hunter2"}, {"username": "b"}, {"username": "c"}]
    return {**document, "subscribers": {"local": local}}


# Every kind of change.


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("cgnat.enabled", False, ["- cgnat.enabled = true", "+ cgnat.enabled = false"]),
        ("bgp", None, ["+ bgp = null", *(f"- {line}" for line in BGP)]),
        # They look alike, as in a candidate that has been looked at in part only.
        ("cgnat.enabled", 1, ["- cgnat.enabled = true", "+ cgnat.enabled = 1"]),
        ("cgnat.vrf_table", "100", ["- cgnat.vrf_table = 100", '+ cgnat.vrf_table = "100"']),
        ("radius.server", "null", ["- radius.server = null", '+ radius.server = "null"']),
        (
            "interfaces.trunks",
            ["trunk1", "trunk0"],
            ['- interfaces.trunks = ["trunk0","trunk1"]', '+ interfaces.trunks = ["trunk1","trunk0"]'],
        ),
        (
            "bgp.neighbors.1.description",
            'a "b" \\c',
            [
                '- bgp.neighbors."10.255.0.6".description = "core2"',
                r'+ bgp.neighbors."10.255.0.6".description = "a \"b\" \\c"',
            ],
        ),
        # An item that came or went touches no other.
        (
            "bgp.neighbors",
            [{"address": "10.0.0.9", "remote_as": 7}, CORE1, CORE2],
            ['+ bgp.neighbors."10.0.0.9".address = "10.0.0.9"', '+ bgp.neighbors."10.0.0.9".remote_as = 7'],
        ),
        ("bgp.neighbors", [CORE2], [f"- {line}" for line in BGP if "10.255.0.2" in line]),
        # Items in another order, with what changed in them, and with others that came and went.
        (
            "bgp.neighbors",
            [{**CORE2, "remote_as": 7}, CORE1],
            [
                '- bgp.neighbors = ["10.255.0.2","10.255.0.6"]',
                '+ bgp.neighbors = ["10.255.0.6","10.255.0.2"]',
                '- bgp.neighbors."10.255.0.6".remote_as = 64513',
                '+ bgp.neighbors."10.255.0.6".remote_as = 7',
            ],
        ),
        (
            "subscribers.local",
            [{"username": "c"}, {"username": "x"}, {"username": "a", "password": "hunter2"}],
            [
                '- subscribers.local = ["a","b","c"]',
                '+ subscribers.local = ["c","x","a"]',
                '- subscribers.local.b.username = "b"',
                '+ subscribers.local.x.username = "x"',
            ],
        ),
        # Items that only move up are in their order.
        (
            "subscribers.local",
            [{"username": "b"}, {"username": "x"}, {"username": "c"}],
            [
                f"- subscribers.local.a.password = {MASK}",
                '- subscribers.local.a.username = "a"',
                '+ subscribers.local.x.username = "x"',
            ],
        ),
        # What the last item or field leaves.
        (
            "subscribers.local",
            [],
            [
                "+ subscribers.local = []",
                f"- subscribers.local.a.password = {MASK}",
                *(f'- subscribers.local.{name}.username = "{name}"' for name in "abc"),
            ],
        ),
        ("system", {}, ["+ system = {}", '- system.hostname = "bng1"']),
        # It is no secret that there was none.
        ("radius.secret", "null", ["- radius.secret = null", f"+ radius.secret = {MASK}"]),
        (
            "subscribers.local.0.password",
            "hunter3",
            [f"- subscribers.local.a.password = {MASK}", f"+ subscribers.local.a.password = {MASK}"],
        ),
    ],
)
def test_what_changed_has_a_line_before_and_one_after(
    document: dict[str, Any], path: str, value: Any, expected: list[str]
) -> None:
    before = copy.deepcopy(document)
    put(document, path, value)
    assert lines(before, document) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("radius.server", ["radius.server = null"]),
        ("interfaces.uplinks", ['interfaces.uplinks = ["uplink0","cgnat0"]']),
        ("bgp", BGP),
    ],
)
def test_what_came_or_went_has_a_line_a_value(
    document: dict[str, Any], path: str, expected: list[str]
) -> None:
    without = copy.deepcopy(document)
    remove(without, path)
    assert lines(document, without) == [f"- {line}" for line in expected]
    assert lines(without, document) == [f"+ {line}" for line in expected]


# Whatever the documents are.


@given(documents, documents, operations)
@enough
def test_there_are_no_changes_exactly_when_the_documents_are_equal(
    before: dict[str, Any], other: dict[str, Any], done: list[Edit]
) -> None:
    for now in (other, after(before, done)):
        copies = copy.deepcopy((before, now))
        found = compare(before, now)
        assert (found == []) == (before == now)
        assert "hunter" not in format_diff(found)
        assert (before, now) == copies


@given(documents, documents)
@enough
def test_lines_depend_on_the_direction_and_not_on_the_order_of_fields(
    before: dict[str, Any], now: dict[str, Any]
) -> None:
    found = compare(before, now)
    assert compare(now, before) == [Change(one.path, one.after, one.before) for one in found]
    assert compare(shuffled(before), shuffled(now)) == found
    paths = [format_path(change.path) for change in found]
    assert paths == sorted(set(paths))
