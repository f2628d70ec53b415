"""Edits of a candidate, and the differences between two configurations."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_contract.base.errors import Invalid, Problem
from gateway_contract.base.logs import MASK
from gateway_contract.base.texts import format_path
from gateway_contract.core.configuration import Edit
from gateway_core.configuration.documents import (
    AbsentPath,
    Change,
    OperationRefused,
    compare,
    edit,
    format_diff,
)
from tests.support.documents import FACTORY, SECRET_HASH, place, put, remove, valid_document

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


ALICE = {"username": "alice", "password_hash": SECRET_HASH, "role": "operator"}
BOB = {**ALICE, "username": "bob"}
RADIUS = {"secret": "new-secret"}


def set_to(path: str, value: Any) -> Edit:
    return Edit("set", path, value)


def delete(path: str) -> Edit:
    return Edit("delete", path)


def edited(document: dict[str, Any], *operations: Edit) -> dict[str, Any]:
    return edit(document, operations)[0]


def problem(document: dict[str, Any], operation: Edit) -> Problem:
    with pytest.raises(OperationRefused) as refused:
        edited(document, operation)
    assert isinstance(refused.value.reason, Invalid)
    (found,) = refused.value.reason.problems
    return found


def reported(document: dict[str, Any], *operations: Edit) -> list[tuple[str, Any, Any]]:
    """The path of each change and both values, "absent" where there is none."""
    return [
        (value.path, *(json.loads(text or '"absent"') for text in (value.before_json, value.after_json)))
        for value in edit(document, operations)[1]
    ]


def test_text_is_read_as_the_value_that_its_place_requires(document: dict[str, Any]) -> None:
    for path, text, stored in (
        *(("api.enabled", text, True) for text in ("true", "TRUE", "tRuE")),
        ("cgnat.enabled", "False", False),
        ("cgnat.vrf_table", "4294967295", 4294967295),
        *(("demux.idle_timeout", text, 300) for text in ("300", "0:05:00", "5 min")),
        *(("qos.default_up", "1.5 Gbps", "1.5 Gbps"), ("cgnat.vrf_name", "pppx", "pppx")),
        # It must be there: null says that there is no outer VLAN.
        ("demux.vlan_profiles.1.outer_vlan_range", "null", None),
        ("bgp", "null", None),
        ("interfaces.trunks", '["tr0", "tr1"]', ["tr0", "tr1"]),
        ("demux.rate_limits", "{}", {}),
        # A text stays one where a text belongs.
        *((path, "null", "null") for path in ("system.hostname", "interfaces.trunks.0")),
        ("bgp.neighbors.0.description", '["tr0"]', '["tr0"]'),
        *(("radius.secret", text, text) for text in ("true", "100", "[]", "{}")),
    ):
        holder, key = place(edited(document, set_to(path, text)), path)
        assert (holder[key], type(holder[key])) == (stored, type(stored)), (path, text)


WRONG: dict[str, list[Any]] = {
    "api.enabled": ["", "yes", "1", " true", "true\n", "\uff54rue", 1, 1.0, []],
    "cgnat.vrf_table": [
        "",
        "-",
        "1.0",
        "+5",
        " 5",
        "0x10",
        "1_000",
        "\u0661",
        "9" * 100_000,
        1.0,
        True,
        "254",
    ],
    "system.hostname": [100, True, ["text"], {"text": "text"}, "", "a b"],
    "interfaces.trunks": ["", "tr0,tr1", "{}", '"tr0"', "[", 1, {}],
    "qos": ["{", "[]", "{}{}", "{'a': 1}", [], '{"a": ' * 10_000],
    "qos.default_up": ["7999", "5MBps", "-5mbit"],
    "radius.server": ["0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "010.0.0.1"],
    "radius.secret": ["x" * 49, "a b", "a#b"],
    "cgnat.vrf_name": ["Default", "ALL", "mgmt", "lo", "ppp17", "ipoe3", "ifb0", "ifb-ppp0"],
    "cgnat.handoff_interface": ["N", "nul", "null", "Null0", "Null01", "blackhole", "Reject", "007"],
    "cgnat.source_range": ["0.1.0.0/16", "126.0.0.0/7", "169.254.9.0/24", "224.0.0.0/4", "255.0.0.0/8"],
    'bgp.neighbors."10.255.0.2".description': ["core | include x", "a  b", " ", "x" * 81, "\u00e9"],
}


@pytest.mark.parametrize("path", WRONG)
def test_a_wrong_value_is_refused_at_its_path(path: str, document: dict[str, Any]) -> None:
    for value in WRONG[path]:
        found = problem(document, set_to(path, value))
        assert (found.path, found.code) == (path, "invalid"), value


def test_a_text_for_no_value_is_refused_where_a_value_can_be_deleted(document: dict[str, Any]) -> None:
    path = 'bgp.neighbors."10.255.0.2".password'
    for text in ("null", "NULL", "None", "~", " null "):
        assert problem(document, set_to(path, text)).message == (
            f"must not be the text {text.strip()}: delete removes it"
        )
    assert problem(document, set_to(path, "")).message == "must not be empty: delete removes it"
    assert problem(document, set_to("radius", {"server": None, "secret": "null"})).path == "radius.secret"


def test_a_problem_within_a_value_has_its_own_path(document: dict[str, Any]) -> None:
    for path, value, wrong, code in (
        ("cgnat", '{"enabled": 1}', "cgnat.enabled", "invalid"),
        ("interfaces", {"trunks": ["tr0", None]}, "interfaces.trunks.1", "invalid"),
        ("demux", {"rate_limits": {"colour": "red"}}, "demux.rate_limits.colour", "unknown"),
        ("api.users.1.role", "root", "api.users.operator.role", "invalid"),
        ("api.users.1", {**ALICE, "role": "root"}, "api.users.operator.role", "invalid"),
        ("api.users", [{**ALICE, "password_hash": MASK}], "api.users.0.password_hash", "invalid"),
    ):
        found = problem(document, set_to(path, value))
        assert (found.path, found.code) == (wrong, code)


def test_a_refusal_names_no_more_problems_than_that_of_a_commit(document: dict[str, Any]) -> None:
    with pytest.raises(OperationRefused) as refused:
        edited(document, set_to("interfaces.trunks", [1] * 50))
    assert isinstance(refused.value.reason, Invalid)
    assert len(refused.value.reason.problems) == 20


def test_a_number_that_is_an_index_and_a_key_is_refused_and_both_items_are_named(
    document: dict[str, Any],
) -> None:
    document["api"]["users"] = [{**ALICE, "username": name} for name in ("2", "3", "1")]
    for operation in (set_to("api.users.1.role", "operator"), delete("api.users.1.role")):
        assert problem(document, operation).message == (
            '1 is an index here, and also the key of an item, api.users."1"; at the index is api.users."3": '
            "write the key, in quotes; in a shell, put single quotes around the path"
        )
    assert 'key of an item, api.users."3": write' in problem(document, delete("api.users.3")).message
    assert len(edited(document, delete('api.users."1"'))["api"]["users"]) == 2


def test_there_is_nothing_to_delete_below_a_section_that_is_null(document: dict[str, Any]) -> None:
    document["bgp"] = None
    with pytest.raises(OperationRefused) as refused:
        edited(document, delete("bgp.as_number"))
    assert isinstance(refused.value.reason, AbsentPath)
    assert "bgp" not in edited(document, delete("bgp"))


def test_an_index_beyond_the_end_of_a_list_is_refused_with_the_last_one(document: dict[str, Any]) -> None:
    assert (
        problem(document, set_to("api.users.3", ALICE)).message == "must be an index up to 2, which appends"
    )


def test_each_change_is_reported_with_its_path_by_keys_and_both_values_without_secrets(
    document: dict[str, Any],
) -> None:
    operations = [
        set_to("bgp.neighbors.1.remote_as", "64999"),
        set_to("api.users.alice", {"password_hash": SECRET_HASH, "role": "operator"}),
        set_to("api.users.3", BOB),
        set_to("api.users.bob.role", "admin"),
        delete("demux.vlan_profiles.1.type"),
        set_to("interfaces.trunks.2", "tr9"),
        set_to("radius.dead_time", 5),
        set_to("radius.secret", "old-secret"),
        set_to("radius", RADIUS),
        delete("radius.secret"),
    ]
    before = copy.deepcopy((document, BOB, RADIUS))
    assert reported(document, *operations) == [
        ('bgp.neighbors."10.255.0.6".remote_as', 64513, 64999),
        ("api.users.alice", "absent", {**ALICE, "password_hash": MASK}),
        ("api.users.bob", "absent", {**BOB, "password_hash": MASK}),
        ("api.users.bob.role", "operator", "admin"),
        ("demux.vlan_profiles.ipoe.type", "dhcp", "absent"),
        ("interfaces.trunks.2", "absent", "tr9"),
        ("radius.dead_time", "absent", 5),
        ("radius.secret", None, MASK),
        ("radius", {"server": None, "secret": MASK, "dead_time": 5}, {"secret": MASK}),
        ("radius.secret", MASK, "absent"),
    ]
    assert (document, BOB, RADIUS) == before


def test_an_unknown_path_below_a_list_hints_at_quotes(document: dict[str, Any]) -> None:
    found = problem(document, set_to("bgp.neighbors.10.255.0.2.password", "text"))
    hint = "; a key with dots or digits needs quotes, and a shell removes them: 'bgp.neighbors.\"KEY\"'"
    assert found.message == f"is not a known path{hint}"
    assert problem(document, set_to("qos.default_dwon", "text")).message == "is not a known path"
