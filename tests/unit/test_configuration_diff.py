"""What is said to differ between two configurations."""

import copy
import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway_api.base.logs import MASK
from gateway_api.base.texts import parse_path, path_text
from gateway_api.core.configuration.documents import Change, changes, diff_text
from gateway_api.core.configuration.edit import OperationRefused, edited
from gateway_api.wire.core.configuration import Edit
from tests.support.documents import FACTORY, SECRET_HASH, put, remove, valid_document

enough = settings(max_examples=50)

OTHER_HASH = SECRET_HASH[:-1] + "."

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
            document, _ = edited(document, [operation])
        except OperationRefused:
            continue
    return document


documents = operations.map(lambda done: after(json.loads(FACTORY.read_text()), done))


def lines(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    text = diff_text(changes(before, now))
    assert text == "" or text.endswith("\n")
    return text.splitlines()


def shuffled(value: Any) -> Any:
    """The same with the fields of all objects in the reverse order."""
    if isinstance(value, dict):
        return {key: shuffled(held) for key, held in reversed(value.items())}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


# Every kind of change.


def test_a_value_that_changed_has_a_line_before_and_one_after() -> None:
    for path, value, expected in (
        (
            "qos.default_down",
            "200mbit",
            ['- qos.default_down = "100mbit"', '+ qos.default_down = "200mbit"'],
        ),
        ("cgnat.enabled", False, ["- cgnat.enabled = true", "+ cgnat.enabled = false"]),
        ("cgnat.vrf_table", 1, ["- cgnat.vrf_table = 100", "+ cgnat.vrf_table = 1"]),
        ("radius.server", "10.0.0.1", ["- radius.server = null", '+ radius.server = "10.0.0.1"']),
        ("demux.rate_limits.burst", 7, ["- demux.rate_limits.burst = 1000", "+ demux.rate_limits.burst = 7"]),
        (
            "interfaces.trunks.1",
            "tr1",
            ['- interfaces.trunks = ["trunk0","trunk1"]', '+ interfaces.trunks = ["trunk0","tr1"]'],
        ),
        (
            "interfaces.trunks",
            ["trunk1", "trunk0"],
            ['- interfaces.trunks = ["trunk0","trunk1"]', '+ interfaces.trunks = ["trunk1","trunk0"]'],
        ),
        (
            "interfaces.trunks",
            [],
            ['- interfaces.trunks = ["trunk0","trunk1"]', "+ interfaces.trunks = []"],
        ),
        (
            "demux.vlan_profiles.1.outer_vlan_range",
            None,
            [
                '- demux.vlan_profiles.ipoe.outer_vlan_range = "100-999"',
                "+ demux.vlan_profiles.ipoe.outer_vlan_range = null",
            ],
        ),
        (
            "bgp.neighbors.1.description",
            'a "b" \\c',
            [
                '- bgp.neighbors."10.255.0.6".description = "core2"',
                r'+ bgp.neighbors."10.255.0.6".description = "a \"b\" \\c"',
            ],
        ),
    ):
        document = valid_document()
        before = copy.deepcopy(document)
        put(document, path, value)
        assert lines(before, document) == expected


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("cgnat.enabled", "cgnat.enabled = true"),
        ("system", 'system.hostname = "bng1"'),
        ("radius.server", "radius.server = null"),
        ("interfaces.uplinks", 'interfaces.uplinks = ["uplink0","cgnat0"]'),
        ("bgp.neighbors.0.description", 'bgp.neighbors."10.255.0.2".description = "core1"'),
    ],
)
def test_a_value_that_came_or_went_has_one_line(document: dict[str, Any], path: str, line: str) -> None:
    without = copy.deepcopy(document)
    remove(without, path)
    assert lines(document, without) == [f"- {line}"]
    assert lines(without, document) == [f"+ {line}"]


def test_a_section_that_came_or_went_has_a_line_a_value(document: dict[str, Any]) -> None:
    without = copy.deepcopy(document)
    del without["bgp"]
    values = [
        "bgp.as_number = 64512",
        'bgp.neighbors."10.255.0.2".address = "10.255.0.2"',
        'bgp.neighbors."10.255.0.2".description = "core1"',
        'bgp.neighbors."10.255.0.2".remote_as = 64513',
        'bgp.neighbors."10.255.0.6".address = "10.255.0.6"',
        'bgp.neighbors."10.255.0.6".description = "core2"',
        'bgp.neighbors."10.255.0.6".remote_as = 64513',
        'bgp.router_id = "10.255.0.1"',
    ]
    assert lines(document, without) == [f"- {value}" for value in values]
    assert lines(without, document) == [f"+ {value}" for value in values]


def test_an_item_that_came_does_not_touch_the_others(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    document["bgp"]["neighbors"].insert(0, {"address": "10.0.0.9", "remote_as": 7})
    assert lines(before, document) == [
        '+ bgp.neighbors."10.0.0.9".address = "10.0.0.9"',
        '+ bgp.neighbors."10.0.0.9".remote_as = 7',
    ]


def test_an_item_that_went_does_not_touch_the_others(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    del document["bgp"]["neighbors"][0]
    assert lines(before, document) == [
        '- bgp.neighbors."10.255.0.2".address = "10.255.0.2"',
        '- bgp.neighbors."10.255.0.2".description = "core1"',
        '- bgp.neighbors."10.255.0.2".remote_as = 64513',
    ]


def test_an_item_under_another_key_is_another_item(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    document["demux"]["vlan_profiles"][0] = {"name": "a.b"}
    found = lines(before, document)
    assert found[0] == '+ demux.vlan_profiles."a.b".name = "a.b"'
    assert [line[:27] for line in found[1:]] == ["- demux.vlan_profiles.pppoe"] * 5


def test_the_last_item_that_goes_leaves_an_empty_list(document: dict[str, Any]) -> None:
    document["subscribers"] = {"local": [{"username": "a", "password": "hunter2"}]}
    before = copy.deepcopy(document)
    document["subscribers"]["local"] = []
    assert lines(before, document) == [
        "+ subscribers.local = []",
        f"- subscribers.local.a.password = {MASK}",
        '- subscribers.local.a.username = "a"',
    ]


def test_the_last_field_that_goes_leaves_an_empty_section(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    del document["system"]["hostname"]
    assert lines(before, document) == ["+ system = {}", '- system.hostname = "bng1"']


@pytest.mark.parametrize("section", ["bgp", "subscribers"])
@pytest.mark.parametrize(("empty", "shown"), [({}, "{}"), (None, "null")])
def test_a_section_without_values_has_a_line_of_its_own(
    document: dict[str, Any], section: str, empty: Any, shown: str
) -> None:
    document.pop(section, None)
    now = {**document, section: empty}
    assert lines(document, now) == [f"+ {section} = {shown}"]
    assert lines(now, document) == [f"- {section} = {shown}"]


@pytest.mark.parametrize(
    ("before", "now"), [(1, True), (0, False), (1, "1"), ("null", None), ([], {}), ([], "[]")]
)
def test_values_that_look_alike_differ(document: dict[str, Any], before: Any, now: Any) -> None:
    """A candidate may hold them: it has been looked at in part only."""
    one, other = ({**document, "system": {"hostname": value}} for value in (before, now))
    assert len(lines(one, other)) == 2


# Order.


def test_items_in_another_order_have_lines_of_their_own(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    document["bgp"]["neighbors"].reverse()
    assert lines(before, document) == [
        '- bgp.neighbors = ["10.255.0.2","10.255.0.6"]',
        '+ bgp.neighbors = ["10.255.0.6","10.255.0.2"]',
    ]


def test_items_in_another_order_are_shown_beside_what_changed_in_them(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    document["bgp"]["neighbors"].reverse()
    document["bgp"]["neighbors"][0]["remote_as"] = 7
    assert lines(before, document) == [
        '- bgp.neighbors = ["10.255.0.2","10.255.0.6"]',
        '+ bgp.neighbors = ["10.255.0.6","10.255.0.2"]',
        '- bgp.neighbors."10.255.0.6".remote_as = 64513',
        '+ bgp.neighbors."10.255.0.6".remote_as = 7',
    ]


def test_items_in_another_order_are_shown_when_others_came_and_went(document: dict[str, Any]) -> None:
    document["subscribers"] = {"local": [{"username": name} for name in "abc"]}
    before = copy.deepcopy(document)
    document["subscribers"] = {"local": [{"username": name} for name in "cxb"]}
    assert lines(before, document) == [
        '- subscribers.local = ["a","b","c"]',
        '+ subscribers.local = ["c","x","b"]',
        '- subscribers.local.a.username = "a"',
        '+ subscribers.local.x.username = "x"',
    ]


def test_items_that_only_move_up_when_another_goes_are_in_their_order(document: dict[str, Any]) -> None:
    document["subscribers"] = {"local": [{"username": name} for name in "abc"]}
    before = copy.deepcopy(document)
    document["subscribers"] = {"local": [{"username": name} for name in "bxc"]}
    assert lines(before, document) == [
        '- subscribers.local.a.username = "a"',
        '+ subscribers.local.x.username = "x"',
    ]


def test_the_order_of_fields_is_no_difference(document: dict[str, Any]) -> None:
    other = shuffled(document)
    assert list(other) != list(document)
    assert lines(document, other) == []


def test_lines_are_in_the_order_of_their_paths_with_what_was_first(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    put(document, "system.hostname", "bng2")
    put(document, "api.token_lifetime", 60)
    put(document, "demux.vlan_profiles.1.type", "pppoe")
    del document["radius"]["server"]
    document["subscribers"] = {}
    assert [line.partition(" =")[0] for line in lines(before, document)] == [
        *("- api.token_lifetime", "+ api.token_lifetime"),
        *("- demux.vlan_profiles.ipoe.type", "+ demux.vlan_profiles.ipoe.type"),
        "- radius.server",
        "+ subscribers",
        *("- system.hostname", "+ system.hostname"),
    ]


# Keys in paths.


def test_a_key_that_is_no_name_is_in_quotes() -> None:
    for key, shown in (
        *[("alice", "alice"), ("a-b_c", "a-b_c"), ("_a", "_a")],
        *[("7", '"7"'), ("a@isp", '"a@isp"'), ("a.b", '"a.b"'), ("1st", '"1st"'), ("a/1", '"a/1"')],
    ):
        document = valid_document()
        now = {**document, "subscribers": {"local": [{"username": key}]}}
        assert lines(document, now) == [f'+ subscribers.local.{shown}.username = "{key}"']


# Secrets.


@pytest.mark.parametrize(
    ("path", "shown", "was", "will_be"),
    [
        ("radius.secret", "radius.secret", "hunter2", "hunter3"),
        ("api.users.0.password_hash", "api.users.admin.password_hash", SECRET_HASH, OTHER_HASH),
        ("subscribers.local.0.password", 'subscribers.local."a@b".password', "hunter2", "hunter3"),
    ],
)
def test_a_secret_that_changed_is_masked_and_shown_as_changed(
    document: dict[str, Any], path: str, shown: str, was: str, will_be: str
) -> None:
    document["subscribers"] = {"local": [{"username": "a@b", "password": "hunter2"}]}
    put(document, path, was)
    before = copy.deepcopy(document)
    put(document, path, will_be)
    assert lines(before, document) == [f"- {shown} = {MASK}", f"+ {shown} = {MASK}"]


def test_it_is_no_secret_that_there_was_none(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    put(document, "radius.secret", "hunter2")
    assert lines(before, document) == ["- radius.secret = null", f"+ radius.secret = {MASK}"]


def test_a_secret_that_reads_null_is_masked(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    put(document, "radius.secret", "null")
    assert lines(before, document) == ["- radius.secret = null", f"+ radius.secret = {MASK}"]


def test_a_secret_that_stays_has_no_line(document: dict[str, Any]) -> None:
    put(document, "radius.secret", "hunter2")
    before = copy.deepcopy(document)
    put(document, "radius.server", "10.0.0.1")
    assert [line for line in lines(before, document) if "secret" in line] == []


@given(documents, documents)
@enough
def test_no_difference_shows_a_secret(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert "hunter" not in diff_text(changes(before, now))


# Whatever the documents are.


@given(documents, operations)
@enough
def test_there_are_no_changes_exactly_when_the_documents_are_equal(
    before: dict[str, Any], done: list[Edit]
) -> None:
    now = after(before, done)
    assert (changes(before, now) == []) == (before == now)


@given(documents, documents)
@enough
def test_the_other_way_round_what_was_is_what_will_be(before: dict[str, Any], now: dict[str, Any]) -> None:
    turned = [Change(change.path, change.after, change.before) for change in changes(before, now)]
    assert changes(now, before) == turned


@given(documents, documents)
@enough
def test_lines_do_not_depend_on_the_order_of_fields(before: dict[str, Any], now: dict[str, Any]) -> None:
    found = changes(before, now)
    assert changes(shuffled(before), shuffled(now)) == found
    paths = [path_text(change.path) for change in found]
    assert paths == sorted(set(paths))


@given(documents, documents)
@enough
def test_a_path_in_a_line_leads_to_the_value(before: dict[str, Any], now: dict[str, Any]) -> None:
    found = changes(before, now)
    assume(found)
    for change in found:
        assert parse_path(path_text(change.path)) == change.path
        if change.after is None:
            assert change.before is not None
        elif change.after != change.before and not _is_an_order(change, now):
            path = path_text(change.path)
            assert edited(now, [Edit("set", path, json.loads(change.after))])[0] == now


def _is_an_order(change: Change, now: dict[str, Any]) -> bool:
    held: Any = now
    for segment in change.path:
        if not isinstance(held, dict):
            return False
        held = held[segment.text]
    return isinstance(held, list) and held != [] and isinstance(held[0], dict)


@given(documents, documents)
@enough
def test_the_documents_stay_as_they_were(before: dict[str, Any], now: dict[str, Any]) -> None:
    copies = copy.deepcopy((before, now))
    changes(before, now)
    assert (before, now) == copies
