"""Values set and deleted at paths of a candidate."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_api.base.errors import Invalid, NotFound, Problem
from gateway_api.base.logs import MASK
from gateway_api.base.texts import path_text
from gateway_api.core.configuration import edit
from gateway_api.core.configuration.edit import AbsentPath, OperationRefused
from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.wire.configuration import masked
from gateway_api.wire.core.configuration import Edit
from tests.support.documents import FACTORY, SECRET_HASH, place, valid_document

enough = settings(max_examples=70)

PROFILE = {
    "name": "extra",
    "type": "pppoe",
    "vlan_range": "4000-4010",
    "outer_vlan_range": None,
    "overhead_profile": "none",
}
ALICE = {"username": "alice", "password_hash": SECRET_HASH, "role": "operator"}
NEIGHBOR = {"address": "10.255.0.9", "remote_as": 64999, "description": "core9"}
BGP = {"as_number": 65000, "router_id": "10.0.0.1", "neighbors": [NEIGHBOR]}


def set_to(path: str, value: Any) -> Edit:
    return Edit("set", path, value)


def delete(path: str) -> Edit:
    return Edit("delete", path)


def held_at(document: dict[str, Any], path: str) -> Any:
    """By names and indexes only."""
    held, key = place(document, path)
    return held[key]


#: The items of lists by their indexes, and by their keys.
ITEMS = {
    "demux.vlan_profiles.0": "demux.vlan_profiles.pppoe",
    "demux.vlan_profiles.1": "demux.vlan_profiles.ipoe",
    "api.users.0": "api.users.admin",
    "api.users.1": "api.users.operator",
    "bgp.neighbors.0": 'bgp.neighbors."10.255.0.2"',
    "bgp.neighbors.1": 'bgp.neighbors."10.255.0.6"',
}


def by_key(path: str) -> str:
    """A path into a valid document with the key of an item in place of its index."""
    index = ".".join(path.split(".")[:3])
    return ITEMS.get(index, index) + path.removeprefix(index)


def edited(document: dict[str, Any], operations: list[Edit]) -> dict[str, Any]:
    return edit.edited(document, operations)[0]


def refusal(document: dict[str, Any], *operations: Edit) -> OperationRefused:
    with pytest.raises(OperationRefused) as refused:
        edited(document, operations)
    return refused.value


def problems(document: dict[str, Any], *operations: Edit) -> list[Problem]:
    reason = refusal(document, *operations).reason
    assert isinstance(reason, Invalid)
    return list(reason.problems)


def problem(document: dict[str, Any], *operations: Edit) -> Problem:
    (found,) = problems(document, *operations)
    return found


# Where a value can be set.


def test_a_value_is_set_at_its_place_and_nowhere_else() -> None:
    for path, value, place_of_it in (
        ("system.hostname", "bng2", "system.hostname"),
        ('"system"."hostname"', "bng2", "system.hostname"),
        ("demux.rate_limits.burst", 7, "demux.rate_limits.burst"),
        ("radius.secret", "s3cret", "radius.secret"),
        ("radius.accounting_port", 2813, "radius.accounting_port"),
        ("qos", {"default_down": "1gbit", "default_up": "1gbit"}, "qos"),
        ("interfaces.trunks", ["tr0", "tr1", "tr2"], "interfaces.trunks"),
        ("interfaces.trunks.0", "tr0", "interfaces.trunks.0"),
        ("interfaces.trunks.1", "tr1", "interfaces.trunks.1"),
        ("interfaces.trunks.2", "tr2", "interfaces.trunks.2"),
        ("interfaces.uplinks.0", "eth0.100", "interfaces.uplinks.0"),
        ("demux.vlan_profiles", [PROFILE], "demux.vlan_profiles"),
        ("demux.vlan_profiles.0", PROFILE, "demux.vlan_profiles.0"),
        ("demux.vlan_profiles.2", PROFILE, "demux.vlan_profiles.2"),
        ("demux.vlan_profiles.extra", PROFILE, "demux.vlan_profiles.2"),
        ("demux.vlan_profiles.ipoe", {**PROFILE, "name": "ipoe"}, "demux.vlan_profiles.1"),
        ("demux.vlan_profiles.1.vlan_range", "5", "demux.vlan_profiles.1.vlan_range"),
        ("demux.vlan_profiles.ipoe.vlan_range", "5", "demux.vlan_profiles.1.vlan_range"),
        ('demux.vlan_profiles."ipoe".outer_vlan_range', None, "demux.vlan_profiles.1.outer_vlan_range"),
        ("api.users.operator.role", "admin", "api.users.1.role"),
        ("bgp", BGP, "bgp"),
        ('bgp.neighbors."10.255.0.6".remote_as', 65001, "bgp.neighbors.1.remote_as"),
        ('bgp.neighbors."10.255.0.9"', NEIGHBOR, "bgp.neighbors.2"),
        ("bgp.neighbors.0.description", "core one", "bgp.neighbors.0.description"),
        ("subscribers", {"local": []}, "subscribers"),
    ):
        document = valid_document()
        expected = copy.deepcopy(document)
        held, key = place(expected, place_of_it)
        if isinstance(held, list) and key == len(held):
            held.append(value)
        else:
            held[key] = value
        assert edited(document, [set_to(path, value)]) == expected


def test_json_text_is_what_it_says() -> None:
    for path, value in (
        ("qos", {"default_down": "1gbit", "default_up": "1gbit"}),
        ("interfaces.trunks", ["tr0"]),
        ("demux.vlan_profiles", [PROFILE]),
        ("demux.vlan_profiles", []),
        ("demux.vlan_profiles.0", PROFILE),
        ("bgp", BGP),
        ("bgp.neighbors", [NEIGHBOR]),
        ("api.users.0", ALICE),
        ("demux.rate_limits", {}),
    ):
        document = valid_document()
        assert held_at(edited(document, [set_to(path, json.dumps(value))]), path) == value


def test_an_item_that_is_named_by_its_key_needs_no_key_of_its_own(document: dict[str, Any]) -> None:
    without = {"password_hash": SECRET_HASH, "role": "operator"}
    assert edited(document, [set_to("api.users.alice", without)])["api"]["users"][2] == ALICE


def test_an_item_comes_to_be_with_its_first_field(document: dict[str, Any]) -> None:
    made = edited(document, [set_to("api.users.alice.role", "operator")])
    assert made["api"]["users"][2] == {"username": "alice", "role": "operator"}


def test_an_item_comes_to_be_with_its_key(document: dict[str, Any]) -> None:
    made = edited(document, [set_to("api.users.alice.username", "alice")])
    assert made["api"]["users"][2] == {"username": "alice"}


def test_the_key_of_a_new_item_may_have_dots_and_digits_in_quotes(document: dict[str, Any]) -> None:
    operations = [
        set_to('bgp.neighbors."10.255.0.9".remote_as', "64999"),
        set_to('subscribers.local."7".password', "pw"),
    ]
    made = edited(document, operations)
    assert made["bgp"]["neighbors"][2] == {"address": "10.255.0.9", "remote_as": 64999}
    assert made["subscribers"]["local"] == [{"username": "7", "password": "pw"}]


def test_all_above_a_value_comes_to_be_with_it(document: dict[str, Any]) -> None:
    assert "subscribers" not in document
    made = edited(document, [set_to("subscribers.local.alice.password", "pw-alice")])
    assert made["subscribers"] == {"local": [{"username": "alice", "password": "pw-alice"}]}


@pytest.mark.parametrize("was", ["absent", None])
def test_a_section_that_was_null_comes_to_be_as_well(document: dict[str, Any], was: str | None) -> None:
    if was is None:
        document["bgp"] = None
    else:
        del document["bgp"]
    made = edited(document, [set_to('bgp.neighbors."10.255.0.9".remote_as', 64999)])
    assert made["bgp"] == {"neighbors": [{"address": "10.255.0.9", "remote_as": 64999}]}


def test_a_list_that_was_not_there_comes_to_be_with_its_first_item() -> None:
    assert edited({}, [set_to("interfaces.trunks.0", "tr0")]) == {"interfaces": {"trunks": ["tr0"]}}


def test_what_is_incomplete_may_be_set(document: dict[str, Any]) -> None:
    assert edited(document, [set_to("cgnat", {"enabled": False})])["cgnat"] == {"enabled": False}


# What a value may be.


def test_text_is_read_as_what_belongs_there() -> None:
    for path, text, stored in (
        *[("api.enabled", text, True) for text in ("true", "TRUE", "True", "tRuE")],
        *[("cgnat.enabled", text, False) for text in ("false", "FALSE", "False")],
        ("cgnat.vrf_table", "100", 100),
        ("cgnat.vrf_table", "4294967295", 4294967295),
        ("radius.authentication_port", "1", 1),
        *[("demux.idle_timeout", text, 300) for text in ("300", "0:05:00", "5 min", "5m")],
        ("api.token_lifetime", "1:00:00", 3600),
        ("bgp.as_number", "65000", 65000),
        ("qos.default_down", "50mbit", "50mbit"),
        ("qos.default_up", "1.5 Gbps", "1.5 Gbps"),
        ("cgnat.source_range", "10.0.0.0/8", "10.0.0.0/8"),
        ("cgnat.handoff_gateway", "192.0.2.1", "192.0.2.1"),
        ("radius.server", "192.0.2.1", "192.0.2.1"),
        # It must be there: null is how it says that there is no outer VLAN.
        ("demux.vlan_profiles.1.outer_vlan_range", "null", None),
        ("bgp", "null", None),
        ("interfaces.trunks", '["tr0", "tr1"]', ["tr0", "tr1"]),
        ("interfaces.trunks", "[]", []),
        ("interfaces.trunks.0", "true", "true"),
        ("interfaces.trunks.0", "100", "100"),
        ("system.hostname", "100", "100"),
        ("bgp.neighbors.0.description", '["tr0"]', '["tr0"]'),
    ):
        document = valid_document()
        held = held_at(edited(document, [set_to(path, text)]), path)
        assert (held, type(held)) == (stored, type(stored))


def test_json_of_the_right_type_is_taken_as_it_is() -> None:
    for path, value in (
        *(("api.enabled", True), ("api.enabled", False), ("cgnat.vrf_table", 7), ("api.token_lifetime", 60)),
        *(("radius.server", None), ("radius.secret", None), ("bgp", None), ("interfaces.trunks", [])),
        ("demux.vlan_profiles.0.outer_vlan_range", None),
    ):
        document = valid_document()
        held = held_at(edited(document, [set_to(path, value)]), path)
        assert (held, type(held)) == (value, type(value))


def test_a_secret_that_looks_like_json_is_a_secret() -> None:
    for text in ("true", "100", "[]", "{}"):
        document = valid_document()
        assert edited(document, [set_to("radius.secret", text)])["radius"]["secret"] == text


def test_a_text_for_no_value_is_refused_where_a_value_may_be_absent() -> None:
    neighbor = 'bgp.neighbors."10.255.0.2"'
    for path in (
        *("radius.secret", "radius.server", "api.auth_token", "subscribers.ipv6_range", "api.listen_address"),
        *(f"{neighbor}.{name}" for name in ("password", "maximum_prefixes", "description")),
        *('api.webhooks.receivers."https://noc.example".secret', "radius.dead_time"),
    ):
        for text in ("null", "NULL", "None", "none", "~", " null "):
            found = problem(valid_document(), set_to(path, text))
            assert (found.path, found.code) == (path, "invalid")
            assert found.message == f"must not be the text {text.strip()}: delete removes it"
        assert problem(valid_document(), set_to(path, "")).message == "must not be empty: delete removes it"


def test_a_text_for_no_value_is_refused_within_a_value_too(document: dict[str, Any]) -> None:
    found = problem(document, set_to("radius", {"server": "192.0.2.1", "secret": "null"}))
    assert (found.path, found.message) == ("radius.secret", "must not be the text null: delete removes it")


def test_a_json_null_may_be_in_the_json_of_an_item(document: dict[str, Any]) -> None:
    item = 'bgp.neighbors."10.255.0.9"'
    made = edited(document, [set_to(item, '{"remote_as": 64999, "password": null}')])
    assert made["bgp"]["neighbors"][-1] == {"address": "10.255.0.9", "remote_as": 64999, "password": None}


def test_a_name_that_is_null_in_letters_is_a_name(document: dict[str, Any]) -> None:
    assert edited(document, [set_to("system.hostname", "null")])["system"]["hostname"] == "null"


NO_FLAGS = ["", "yes", "no", "on", "1", "0", " true", "true ", "true\n", "t", "null", "\uff54rue", 1, 0, 1.0]
NO_NUMBERS = [
    *("", "-", "1.0", "1e3", "+5", " 5", "5 ", "5\n", "0x10", "1_000", "1,000", "five", "null", "true"),
    "5 minutes",
    *("\uff11", "\u0661", "5\u0661", "\u00b2", "9" * 21, "9" * 100_000, 1.0, 100.5, True, False),
]
NO_TEXTS = [100, 1.5, True, ["text"], {"text": "text"}]
WRONG = [
    *[("api.enabled", value) for value in (*NO_FLAGS, [], {})],
    *[("cgnat.vrf_table", value) for value in (*NO_NUMBERS, [], {})],
    *[("cgnat.vrf_table", value) for value in ("0", "-1", "254", "4294967296", 0, -1, 254, 2**80)],
    *[("system.hostname", value) for value in (*NO_TEXTS, "", "-", "a b")],
    *[("radius.secret", value) for value in (*NO_TEXTS, "", "a b", "a#b")],
    *[("radius.server", value) for value in (*NO_TEXTS, "", "radius.example", "10.0.0", "::1", "Null")],
    *[
        ("radius.server", value)
        for value in ("10.0.0.256", "10.0.0.\uff11", "10.0.0.1/32", "010.0.0.1", "10.0.0.1\n")
    ],
    *[("radius.server", value) for value in ("0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255")],
    *[("cgnat.source_range", value) for value in (*NO_TEXTS, "", "10.0.0.0", "10.0.0.1/8", "10.0.0.0/31")],
    *[("cgnat.source_range", value) for value in ("0.0.0.0/0", "0.1.0.0/16", "127.0.0.0/8", "126.0.0.0/7")],
    *[("cgnat.source_range", value) for value in ("169.254.0.0/16", "169.254.9.0/24", "169.0.0.0/8")],
    *[
        ("cgnat.source_range", value)
        for value in ("224.0.0.0/4", "239.1.0.0/16", "240.0.0.0/4", "255.0.0.0/8")
    ],
    *[
        ("cgnat.vrf_name", value)
        for value in (*NO_TEXTS, "", "default", "all", "mgmt", "lo", "Default", "ALL")
    ],
    *[
        ("cgnat.vrf_name", value)
        for value in ("ppp0", "ppp17", "ipoe3", "ifb0", "ifb-ppp0", "sixteen_letters_")
    ],
    *[
        ("cgnat.handoff_interface", value)
        for value in (*NO_TEXTS, "", "Null0", "null0", "N", "nul", "Null01")
    ],
    *[("cgnat.handoff_interface", value) for value in ("blackhole", "Reject", "1", "255", "007")],
    *[("bgp.neighbors.0.description", value) for value in ("core | include x", "| x", "a| b", "a  b")],
    *[("qos.default_up", value) for value in (*NO_TEXTS, "", "fast", "0", "-5mbit", "5MBps", "\uff15mbit")],
    *[("interfaces.trunks", value) for value in ("", "tr0", "tr0,tr1", "{}", '"tr0"', "[", 1, True, {})],
    *[("interfaces.trunks.0", value) for value in (*NO_TEXTS, "", "a b", "sixteen_letters_")],
    *[("qos", value) for value in ("", "{", "[]", "qos", '"{}"', "1", 1, True, [], "{}{}", "{'a': 1}")],
    *[("demux.vlan_profiles", value) for value in ("", "{}", "[", "extra", {}, 1, "[" * 100_000)],
    *[("demux.vlan_profiles.0", value) for value in ("", "[]", "extra", [], 1, '{"a": ' * 10_000)],
    *[("demux.vlan_profiles.0.type", value) for value in (*NO_TEXTS, "PPPoE", "")],
    *[("bgp.neighbors.0.description", value) for value in (*NO_TEXTS, " ", "x" * 81, "a\nb", "\u00e9")],
]


def test_a_value_of_the_wrong_kind_is_refused_at_its_path() -> None:
    for path, value in WRONG:
        document = valid_document()
        found = problem(document, set_to(path, value))
        assert (found.path, found.code) == (by_key(path), "invalid")


def test_null_is_refused_where_something_must_be() -> None:
    for path in (
        *("system", "system.hostname", "interfaces.trunks", "interfaces.trunks.0", "cgnat.enabled", "qos"),
        *("cgnat.vrf_table", "qos.default_up", "demux.vlan_profiles", "demux.vlan_profiles.0", "api.users"),
        *("demux.vlan_profiles.ipoe", "demux.rate_limits", "api.users.0.role", "subscribers"),
    ):
        document = valid_document()
        found = problem(document, set_to(path, None))
        assert (found.path, found.message) == (by_key(path), "must not be null")


def test_what_is_wrong_within_a_value_is_named_by_its_own_path() -> None:
    for path, value, wrong in (
        ("cgnat", {"enabled": "true"}, {"cgnat.enabled"}),
        ("cgnat", {"vrf_table": "100"}, {"cgnat.vrf_table"}),
        ("cgnat", '{"enabled": 1, "vrf_table": true}', {"cgnat.enabled", "cgnat.vrf_table"}),
        ("cgnat", {"enabled": None}, {"cgnat.enabled"}),
        ("demux", {"rate_limits": {"burst": 0, "max_vlans": 1}}, {"demux.rate_limits.burst"}),
        (
            "interfaces",
            {"trunks": ["tr0", 1], "uplinks": "[]"},
            {"interfaces.trunks.1", "interfaces.uplinks"},
        ),
        ("interfaces.trunks", ["tr0", None, "a b"], {"interfaces.trunks.1", "interfaces.trunks.2"}),
        (
            "demux.vlan_profiles",
            [PROFILE, {**PROFILE, "name": "b", "type": 1}],
            {"demux.vlan_profiles.1.type"},
        ),
        ("demux.vlan_profiles", [PROFILE, "extra"], {"demux.vlan_profiles.1", "demux.vlan_profiles.1.name"}),
        ("bgp", {"neighbors": [{**NEIGHBOR, "address": "::1"}]}, {"bgp.neighbors.0.address"}),
    ):
        document = valid_document()
        assert {found.path for found in problems(document, set_to(path, value))} == wrong


def test_a_field_that_nobody_knows_is_refused_by_its_own_path(document: dict[str, Any]) -> None:
    value = {"burst": 5, "colour": "red"}
    found = problem(document, set_to("demux", {"rate_limits": value}))
    assert (found.path, found.code) == ("demux.rate_limits.colour", "unknown")


@pytest.mark.parametrize("path", ["interfaces.trunks", "demux.vlan_profiles"])
def test_a_refusal_names_no_more_problems_than_that_of_a_commit(document: dict[str, Any], path: str) -> None:
    """A small value must not get an answer many times its size."""
    assert len(problems(document, set_to(path, [1] * 1000))) <= 20


# The mask that stands for a secret where one is shown.


def test_a_mask_is_refused_wherever_it_is() -> None:
    for path, value, named in (
        ("radius.secret", MASK, "radius.secret"),
        ("api.users.0.password_hash", MASK, "api.users.admin.password_hash"),
        ("api.users.admin.password_hash", MASK, "api.users.admin.password_hash"),
        ("subscribers.local.alice.password", MASK, "subscribers.local.alice.password"),
        ("system.hostname", MASK, "system.hostname"),
        ("bgp.neighbors.0.description", MASK, 'bgp.neighbors."10.255.0.2".description'),
        ("radius", MASK, "radius"),
        ("radius", {"server": None, "secret": MASK}, "radius.secret"),
        ("radius", json.dumps({"server": None, "secret": MASK}), "radius.secret"),
        ("api.users.0", {**ALICE, "password_hash": MASK}, "api.users.admin.password_hash"),
        ("api", {"users": [{**ALICE, "password_hash": MASK}]}, "api.users.0.password_hash"),
        ("api.users", json.dumps([{**ALICE, "password_hash": MASK}]), "api.users.0.password_hash"),
        ("subscribers", {"local": [{"username": "a", "password": MASK}]}, "subscribers.local.0.password"),
    ):
        document = valid_document()
        found = problem(document, set_to(path, value))
        assert (found.path, found.message) == (named, "must be a value, not the mask that hides one")


def test_a_configuration_that_was_shown_cannot_be_set_with_its_masks(document: dict[str, Any]) -> None:
    shown = masked(RunningConfiguration.of(document).document)
    found = problems(document, *(set_to(name, section) for name, section in shown.items()))
    assert [p.path for p in found] == ["api.users.0.password_hash", "api.users.1.password_hash"]


# Paths that lead nowhere.


def test_an_unknown_path_is_refused_with_the_whole_of_it() -> None:
    for path in (
        *("syst", "0", "syst.hostname", "system.host_name", "system.hostname.x", "system.hostname.0"),
        *("system.0", '"0"', "qos.default", "demux.rate_limits.max.x", "interfaces.trunks.0.x"),
        *("interfaces.trunks.tr0.x", "interfaces.trunks.9.x", "interfaces.trunks.0.0", "radius.secret.x"),
        *("demux.vlan_profiles.0.colour", "demux.vlan_profiles.extra.colour", "demux.vlan_profiles.2.type"),
        *("demux.vlan_profiles.ipoe.vlan_range.0", "api.users.9.role", "api.users.admin.role.x"),
        *('bgp.neighbors."10.255.0.2".as', "bgp.neighbours", "subscribers.remote", "api.users.admin.0"),
        *("__class__", "system.__class__", "cgnat._"),
    ):
        document = valid_document()
        found = problem(document, set_to(path, "anything"))
        assert (found.path, found.code) == (by_key(path), "unknown")


def test_what_is_no_path_is_refused() -> None:
    for action in (set_to, lambda path, _value: delete(path)):
        for path in ("", "a..b", "system.", 'api.users."alice', "a" * 600):
            document = valid_document()
            refused = refusal(document, action(path, "bng2"))
            assert isinstance(refused.reason, Invalid)
            assert [(found.path, found.code) for found in refused.reason.problems] == [("path", "invalid")]
            assert refused.path == path


@pytest.mark.parametrize(
    "path", ["interfaces.trunks.3", "demux.vlan_profiles.3", "api.users.999999", "bgp.neighbors.3"]
)
def test_an_index_far_beyond_the_end_is_refused(document: dict[str, Any], path: str) -> None:
    valid = {"trunks": "tr0", "vlan_profiles": PROFILE, "users": ALICE, "neighbors": NEIGHBOR}
    found = problem(document, set_to(path, valid[path.split(".")[1]]))
    assert (found.path, found.code) == (path, "invalid")
    assert "up to 2" in found.message


def test_a_list_of_texts_grows_by_an_index_only(document: dict[str, Any]) -> None:
    found = problem(document, set_to("interfaces.trunks.tr9", "tr9"))
    assert (found.path, found.message) == ("interfaces.trunks.tr9", "must end in an index")


# What items are known by.

KEYED = [
    ("demux.vlan_profiles", "name", "ipoe", "extra"),
    ("api.users", "username", "operator", "alice"),
    ("bgp.neighbors", "address", '"10.255.0.6"', "10.255.0.9"),
]


@pytest.mark.parametrize(("path", "key", "item", "other"), KEYED)
def test_the_key_of_an_item_cannot_be_changed(
    document: dict[str, Any], path: str, key: str, item: str, other: str
) -> None:
    for named in (item, "1"):
        found = problem(document, set_to(f"{path}.{named}.{key}", other))
        assert (found.path, found.code) == (f"{path}.{item}.{key}", "invalid")


@pytest.mark.parametrize(("path", "key", "item", "_other"), KEYED)
def test_the_key_of_an_item_may_be_set_to_what_it_is(
    document: dict[str, Any], path: str, key: str, item: str, _other: str
) -> None:
    assert edited(document, [set_to(f"{path}.{item}.{key}", item.strip('"'))]) == document


@pytest.mark.parametrize(("path", "key", "item", "_other"), KEYED)
def test_the_key_of_an_item_cannot_be_deleted(
    document: dict[str, Any], path: str, key: str, item: str, _other: str
) -> None:
    for named in (item, "1"):
        found = problem(document, delete(f"{path}.{named}.{key}"))
        assert (found.path, found.code) == (f"{path}.{item}.{key}", "invalid")


@pytest.mark.parametrize(("path", "key", "item", "other"), KEYED)
def test_an_item_must_have_the_key_that_the_path_names(
    document: dict[str, Any], path: str, key: str, item: str, other: str
) -> None:
    found = problem(document, set_to(f"{path}.{item}", {key: other}))
    assert (found.path, found.code) == (f"{path}.{item}.{key}", "invalid")


def test_an_item_cannot_take_the_key_of_another() -> None:
    for path, key, item, _other in KEYED:
        for number in (0, 2):
            document = valid_document()
            found = problem(document, set_to(f"{path}.{number}", {key: item.strip('"')}))
            assert (found.path, found.code) == (by_key(f"{path}.{number}.{key}"), "invalid")


def test_an_item_that_is_named_by_its_index_must_bring_its_key() -> None:
    for path, key, _item, _other in KEYED:
        for number in (1, 2):
            document = valid_document()
            for value in ({}, "{}"):
                found = problem(document, set_to(f"{path}.{number}", value))
                assert (found.path, found.code) == (by_key(f"{path}.{number}.{key}"), "missing")


@pytest.mark.parametrize(("path", "key", "_item", "other"), KEYED)
def test_the_items_of_a_list_must_each_bring_a_key_of_their_own(
    document: dict[str, Any], path: str, key: str, _item: str, other: str
) -> None:
    found = problems(document, set_to(path, [{key: other}, {}, {key: other}, {key: None}]))
    assert {f"{path}.1.{key}", f"{path}.2.{key}", f"{path}.3.{key}"} == {p.path for p in found}


def test_a_key_that_an_item_cannot_have_is_refused_in_a_path_as_well() -> None:
    for path, key in (
        ('api.users."a b".role', 'api.users."a b".username'),
        ('bgp.neighbors."::1".remote_as', 'bgp.neighbors."::1".address'),
        ("bgp.neighbors.core1.remote_as", "bgp.neighbors.core1.address"),
        ('demux.vlan_profiles."1st".type', 'demux.vlan_profiles."1st".name'),
        (f'subscribers.local."{MASK}".password', f'subscribers.local."{MASK}".username'),
    ):
        document = valid_document()
        found = problem(document, set_to(path, "pw"))
        assert (found.path, found.code) == (key, "invalid")


# Deleting.


def test_what_is_deleted_is_gone_and_nothing_else() -> None:
    for path, place_of_it in (
        ("bgp", "bgp"),
        ("system.hostname", "system.hostname"),
        ("radius.server", "radius.server"),
        ("demux.rate_limits", "demux.rate_limits"),
        ("interfaces.trunks", "interfaces.trunks"),
        ("interfaces.trunks.0", "interfaces.trunks.0"),
        ("interfaces.trunks.trunk1", "interfaces.trunks.1"),
        ('interfaces.uplinks."uplink0"', "interfaces.uplinks.0"),
        ("demux.vlan_profiles.1", "demux.vlan_profiles.1"),
        ("demux.vlan_profiles.ipoe", "demux.vlan_profiles.1"),
        ("demux.vlan_profiles.ipoe.type", "demux.vlan_profiles.1.type"),
        ("api.users.admin", "api.users.0"),
        ('bgp.neighbors."10.255.0.6"', "bgp.neighbors.1"),
        ("bgp.neighbors.0.description", "bgp.neighbors.0.description"),
    ):
        document = valid_document()
        expected = copy.deepcopy(document)
        held, key = place(expected, place_of_it)
        del held[key]
        assert edited(document, [delete(path)]) == expected


def test_a_text_with_dots_is_deleted_by_itself_in_quotes(document: dict[str, Any]) -> None:
    document["interfaces"]["trunks"] = ["eth0", "eth0.100", "100"]
    made = edited(document, [delete('interfaces.trunks."eth0.100"'), delete('interfaces.trunks."100"')])
    assert made["interfaces"]["trunks"] == ["eth0"]


def test_what_is_not_there_cannot_be_deleted() -> None:
    for path in (
        *("subscribers", "syst", "system.host_name", "system.hostname.x", "system.hostname.0", "system.0"),
        *(
            "radius.authentication_port",
            "interfaces.trunks.2",
            "interfaces.trunks.tr9",
            "subscribers.local.a",
        ),
        *(
            "interfaces.trunks.0.x",
            'interfaces.trunks."0"',
            "demux.vlan_profiles.2",
            "demux.vlan_profiles.no",
        ),
        *("api.users.nobody", "api.users.nobody.role", "api.users.nobody.username", "api.users.0.colour"),
        *('api.users."0"', "bgp.neighbors.10", "radius.server.x", "__class__"),
    ):
        document = valid_document()
        refused = refusal(document, delete(path))
        assert isinstance(refused.reason, AbsentPath)
        assert (refused.number, refused.path) == (0, path)
        assert path_text(refused.reason.path) == by_key(path)


def test_there_is_nothing_below_a_section_that_is_null(document: dict[str, Any]) -> None:
    document["bgp"] = None
    assert isinstance(refusal(document, delete("bgp.as_number")).reason, NotFound)


def test_a_section_that_is_null_can_be_deleted(document: dict[str, Any]) -> None:
    document["bgp"] = None
    assert "bgp" not in edited(document, [delete("bgp")])


def test_what_is_deleted_twice_is_not_there_the_second_time(document: dict[str, Any]) -> None:
    refused = refusal(document, delete("bgp"), delete("bgp"))
    assert isinstance(refused.reason, NotFound)
    assert refused.number == 1


# Several operations.


def test_operations_are_done_in_their_order(document: dict[str, Any]) -> None:
    operations = [
        set_to("subscribers.local.alice.password", "first"),
        set_to("subscribers.local.0.ip_address", "100.64.0.7"),
        set_to("subscribers.local.bob.password", "pw-bob"),
        set_to("subscribers.local.alice.password", "second"),
        delete("interfaces.trunks.0"),
        delete("interfaces.trunks.0"),
        set_to("interfaces.trunks.0", "tr0"),
        delete("subscribers.local.0"),
        set_to("subscribers.local.alice.password", "third"),
    ]
    made = edited(document, operations)
    assert made["interfaces"]["trunks"] == ["tr0"]
    bob, alice = made["subscribers"]["local"]
    assert (bob, alice) == (
        {"username": "bob", "password": "pw-bob"},
        {"username": "alice", "password": "third"},
    )


def test_no_operations_change_nothing(document: dict[str, Any]) -> None:
    assert edited(document, []) == document


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_operation_that_cannot_be_done_is_named(document: dict[str, Any], number: int) -> None:
    operations = [set_to("system.hostname", "bng2"), set_to("qos.default_up", "1gbit")]
    operations.insert(number, set_to("qos.default_down", "fast"))
    refused = refusal(document, *operations)
    assert (refused.number, refused.path) == (number, "qos.default_down")
    assert str(refused).startswith(f"operation {number}: qos.default_down: must be")


def test_when_one_operation_cannot_be_done_none_is(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    refusal(document, set_to("system.hostname", "bng2"), delete("bgp"), delete("bgp"))
    assert document == before


def test_the_document_that_is_given_stays_as_it_was(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    edited(
        document,
        [
            set_to("system.hostname", "bng2"),
            set_to("interfaces.trunks.2", "tr2"),
            set_to("demux.vlan_profiles.ipoe.type", "pppoe"),
            set_to("demux.vlan_profiles.extra", PROFILE),
            delete("api.users.operator"),
            delete("bgp.neighbors.0.description"),
        ],
    )
    assert document == before


def test_the_document_that_is_made_shares_nothing_with_the_one_that_is_given(
    document: dict[str, Any],
) -> None:
    before = copy.deepcopy(document)
    made = edited(document, [])
    made["api"]["users"].clear()
    made["demux"]["vlan_profiles"][0]["name"] = "other"
    assert document == before


def test_an_operation_stays_as_it_was(document: dict[str, Any]) -> None:
    value = {"type": "pppoe"}
    edited(document, [set_to("demux.vlan_profiles.extra", value)])
    assert value == {"type": "pppoe"}


# Whatever is tried.

FIELDS = [
    *("local", "username", "password", "secret", "users", "role", "name", "enabled", "trunks", "address"),
    *("neighbors", "server", "hostname", "rate_limits", "burst", "vlan_profiles", "type", "local"),
]
PATHS = [
    *("system", "interfaces", "radius", "cgnat", "qos", "demux", "api", "bgp", "subscribers"),
    *("system.hostname", "interfaces.trunks", "interfaces.trunks.0", "interfaces.trunks.2"),
    *("radius.server", "radius.secret", "radius.accounting_port", "cgnat.enabled", "cgnat.vrf_table"),
    *("cgnat.source_range", "cgnat.handoff_gateway", "qos.default_up", "demux.rate_limits.burst"),
    *("demux.vlan_profiles", "demux.vlan_profiles.0", "demux.vlan_profiles.2", "demux.vlan_profiles.ipoe"),
    *("demux.vlan_profiles.extra", "demux.vlan_profiles.extra.type", "demux.vlan_profiles.0.name"),
    *("demux.vlan_profiles.1.outer_vlan_range", "demux.vlan_profiles.1.overhead_profile", "api.users"),
    *("api.users.0.password_hash", "api.users.alice", "api.users.alice.role", "api.users.1.username"),
    *('bgp.neighbors."10.255.0.9".remote_as', "bgp.neighbors.0.description", "bgp.neighbors.0.address"),
    *("subscribers.local.alice.password", "subscribers.local", "subscribers.local.0", "syst", "no path"),
]
WORDS = [
    *("true", "null", "7", "1.0", "[]", "{}", "10.0.0.1", "10.0.0.0/8", "50mbit", "pppoe", "none", "7-9"),
    *("eth0", "trunk0", "alice", "extra", "10.255.0.2", "admin", MASK, SECRET_HASH, "x" * 200, " "),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 70_000) | st.floats(allow_nan=False) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)
operations = st.lists(
    st.builds(set_to, st.sampled_from(PATHS), json_values | json_values.map(json.dumps))
    | st.builds(delete, st.sampled_from(PATHS)),
    max_size=10,
)
DOCUMENT = json.loads(FACTORY.read_text())


def after(tried: list[Edit]) -> dict[str, Any]:
    """The document after those that can be done, each on its own."""
    made = DOCUMENT
    for operation in tried:
        try:
            made = edited(made, [operation])
        except OperationRefused:
            continue
    return made


@given(operations)
@enough
def test_whatever_is_tried_the_items_of_a_list_have_keys_of_their_own(tried: list[Edit]) -> None:
    made = after(tried)
    for path, key, _item, _other in (*KEYED, ("subscribers.local", "username", "", "")):
        section, name = path.split(".")
        keys = [item[key] for item in (made.get(section) or {}).get(name, ())]
        assert len(set(keys)) == len(keys)
        assert all(isinstance(held, str) for held in keys)


#: Where something must fit to something else, which only a commit looks at.
FITTING = {
    *("interfaces.trunks", "interfaces.uplinks", "demux.trunks", "cgnat.vrf_name"),
    *("cgnat.handoff_interface", "radius.secret", "api.users"),
}


@given(operations)
@enough
def test_whatever_is_tried_a_commit_finds_only_what_is_missing_or_does_not_fit(
    tried: list[Edit],
) -> None:
    try:
        RunningConfiguration.of(after(tried))
    except Invalid as error:
        for found in error.problems:
            fitting = found.path in FITTING or found.path.endswith(".vlan_range")
            assert found.code == "missing" or fitting, found


@given(st.lists(st.sampled_from(PATHS), max_size=4), st.sampled_from(PATHS), st.data())
@enough
def test_whatever_is_tried_a_refusal_does_not_tell_the_value(
    before: list[str], path: str, data: st.DataObject
) -> None:
    """Values are secrets at times, and errors are logged."""
    secret = st.text("hunter2 \"#'\\\n", max_size=3).map(lambda text: f"hunter2{text}hunter2")
    value = data.draw(
        st.recursive(
            secret,
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
                | inner.map(json.dumps)
            ),
            max_leaves=6,
        )
    )
    try:
        edited(after([delete(path) for path in before]), [set_to(path, value)])
    except OperationRefused as refused:
        assert "hunter2" not in str(refused)
        assert isinstance(refused.reason, Invalid)
        assert "hunter2" not in repr(refused.reason.problems)


@given(operations)
@enough
def test_whatever_is_tried_the_document_that_is_given_stays_as_it_was(tried: list[Edit]) -> None:
    made = after(tried)
    before = copy.deepcopy(made)
    try:
        edited(made, tried)
    except OperationRefused:
        pass
    finally:
        assert made == before


# The values before and after.


def changed(document: dict[str, Any], *operations: Edit) -> list[tuple[Any, Any]]:
    """What each operation reports, "absent" where there is no value."""
    _, values = edit.edited(document, operations)
    shown = [(value.before_json, value.after_json) for value in values]
    return [tuple("absent" if text is None else json.loads(text) for text in pair) for pair in shown]


@pytest.fixture
def numbered(document: dict[str, Any]) -> dict[str, Any]:
    """Its users have numbers as names, in another order than their places."""
    document["api"]["users"] = [{**ALICE, "username": name} for name in ("2", "1", "0")]
    document["api"]["users"][2]["role"] = "admin"
    return document


def test_a_number_in_quotes_is_a_key(numbered: dict[str, Any]) -> None:
    assert changed(numbered, set_to('api.users."0".role', "operator")) == [("admin", "operator")]
    ((before, after),) = changed(numbered, delete('api.users."0"'))
    assert (before["username"], before["role"], after) == ("0", "admin", "absent")


#: Lists whose items have numbers or texts with dots as keys: the list, its items, the field of a key.
NUMBERED: list[tuple[str, list[dict[str, Any]], str]] = [
    ("subscribers.local", [{"username": name, "password": "pw"} for name in ("2", "7", "1")], "password"),
    ("api.users", [{**ALICE, "username": name} for name in ("2", "7", "1")], "role"),
]


@pytest.mark.parametrize(("above", "items", "field"), NUMBERED, ids=["subscribers", "users"])
@pytest.mark.parametrize("below", ["", ".{field}"], ids=["item", "field"])
def test_a_bare_number_that_is_a_key_is_refused_and_both_items_are_named(
    document: dict[str, Any], above: str, items: list[dict[str, Any]], field: str, below: str
) -> None:
    section, name = above.split(".")
    document.setdefault(section, {})[name] = items
    path = f"{above}.1{below.format(field=field)}"
    for operation in (set_to(path, "operator"), delete(path)):
        found = problem(document, operation)
        assert (found.path, found.code) == (path, "invalid")
        assert found.message == (
            f'1 is an index here, and also the key of an item, {above}."1"; at the index is {above}."7": '
            "write the key, in quotes; in a shell, put single quotes around the path"
        )


def test_a_bare_number_that_is_a_key_is_refused_beyond_the_end_of_the_list_too(
    numbered: dict[str, Any],
) -> None:
    numbered["api"]["users"][0]["username"] = "120"
    found = problem(numbered, delete("api.users.120.role"))
    assert found.message.startswith(
        '120 is an index here, and also the key of an item, api.users."120": write'
    )


def test_a_bare_number_that_is_a_text_of_the_list_is_refused(document: dict[str, Any]) -> None:
    document["interfaces"]["trunks"] = ["eth0", "eth1", "1"]
    found = problem(document, delete("interfaces.trunks.1"))
    assert 'interfaces.trunks."1"; at the index is interfaces.trunks.eth1' in found.message


def test_each_change_has_its_path_with_the_keys_of_items(document: dict[str, Any]) -> None:
    operations = (
        set_to("bgp.neighbors.1.remote_as", 64999),
        delete("bgp.neighbors.0.description"),
        set_to("api.users.2", {**ALICE, "username": "7"}),
        delete("demux.vlan_profiles.1"),
        set_to("interfaces.trunks.1", "tr9"),
        set_to("system.hostname", "bng9"),
    )
    assert [value.path for value in edit.edited(document, operations)[1]] == [
        'bgp.neighbors."10.255.0.6".remote_as',
        'bgp.neighbors."10.255.0.2".description',
        'api.users."7"',
        "demux.vlan_profiles.ipoe",
        "interfaces.trunks.1",
        "system.hostname",
    ]


@pytest.mark.parametrize(
    ("path", "above"),
    [
        ("bgp.neighbors.10.255.0.2.password", "bgp.neighbors"),
        ("api.users.j.doe.role", "api.users"),
        ("subscribers.local.9.password", "subscribers.local"),
        ("demux.vlan_profiles.ipoe.colour", "demux.vlan_profiles"),
        ("qos.default_dwon", None),
        ("radius.hunter2.5", None),
    ],
)
def test_an_unknown_path_into_a_list_hints_at_quotes(
    document: dict[str, Any], path: str, above: str | None
) -> None:
    hint = f"; a key with dots or digits needs quotes, and a shell removes them: '{above}.\"KEY\"'"
    found = problem(document, set_to(path, "text"))
    assert (found.code, found.message) == ("unknown", f"is not a known path{'' if above is None else hint}")


def test_a_value_that_is_new_was_absent_and_null_is_a_value(document: dict[str, Any]) -> None:
    del document["qos"]["default_up"]
    document["bgp"] = None
    assert changed(document, set_to("qos.default_up", "5mbit")) == [("absent", "5mbit")]
    assert changed(document, set_to("bgp", BGP)) == [(None, BGP)]
    assert changed(document, set_to("radius.server", None))[0][1] is None
    number = len(document["interfaces"]["trunks"])
    assert changed(document, set_to(f"interfaces.trunks.{number}", "tr9")) == [("absent", "tr9")]


def test_a_value_is_reported_as_it_is_stored(document: dict[str, Any]) -> None:
    table = document["cgnat"]["vrf_table"]
    assert changed(document, set_to("cgnat.vrf_table", "777")) == [(table, 777)]
    without = {"address": "10.255.0.9", "remote_as": 64999}
    ((_, after),) = changed(document, set_to('bgp.neighbors."10.255.0.9"', {"remote_as": 64999}))
    assert after == without


def test_each_operation_reports_the_value_that_it_met(document: dict[str, Any]) -> None:
    old = document["system"]["hostname"]
    hostnames = [set_to("system.hostname", "bng2"), set_to("system.hostname", "bng3")]
    assert changed(document, *hostnames) == [(old, "bng2"), ("bng2", "bng3")]
    document["interfaces"]["uplinks"] = ["a0", "b0", "c0"]
    removed = changed(document, *2 * [delete("interfaces.uplinks.0")])
    assert removed == [("a0", "absent"), ("b0", "absent")]


def test_a_report_is_not_changed_by_a_later_operation(document: dict[str, Any]) -> None:
    first, _ = changed(document, set_to("bgp", BGP), set_to("bgp.neighbors.0.description", "other"))
    assert first[1] == BGP


def test_secrets_are_masked_in_both_values(document: dict[str, Any]) -> None:
    document["radius"]["secret"] = "old-hunter2"
    report = json.dumps(
        changed(
            document,
            set_to("radius.secret", "new-hunter2"),
            set_to("radius", {**document["radius"], "secret": "third-hunter2"}),
            set_to("subscribers.local.alice.password", "hunter2"),
            delete("subscribers.local.alice"),
            set_to("api.users.alice", ALICE),
        )
    )
    assert "hunter2" not in report
    assert SECRET_HASH not in report
    assert report.count(MASK) == 7
    document["radius"]["secret"] = None
    assert changed(document, set_to("radius.secret", "hunter2")) == [(None, MASK)]


def test_a_name_that_ends_like_a_secret_hides_nothing_but_the_secrets(document: dict[str, Any]) -> None:
    monkey = {**ALICE, "username": "monkey"}
    ((_, after),) = changed(document, set_to("api.users.monkey", monkey))
    assert after == {**monkey, "password_hash": MASK}
