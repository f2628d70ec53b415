"""A partial configuration becomes the operations of an edit: those that change something."""

from typing import Any

import pytest

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.logs import MASK
from gatewayctl.commands.rollout import list_differences
from gatewayctl.merge_patch import compare
from tests.support.documents import valid_document


def operations(patch: Any, **sections: Any) -> list[Any]:
    """Return the operations of a patch as pairs of path and value; `delete` stands for a deletion. A section
    replaces that of a valid configuration."""
    return [
        (found["path"], found.get("value", found["op"]))
        for found in (change.operation for change in compare(patch, {**valid_document(), **sections}))
    ]


def neighbors(*items: Any) -> Any:
    return {"bgp": {"as_number": 64512, "router_id": "10.255.0.1", "neighbors": list(items)}}


CORE = {"address": "10.255.0.2", "remote_as": 64513, "description": "core1"}
CORE_PATH = 'bgp.neighbors."10.255.0.2"'


@pytest.mark.parametrize(
    ("patch", "sections", "expected"),
    [
        # Objects merge, and any other value replaces.
        ({"qos": {"default_up": "9mbit"}}, {}, [("qos.default_up", "9mbit")]),
        ({"demux": {"trunks": ["trunk9"]}}, {}, [("demux.trunks", ["trunk9"])]),
        ({"bgp": {"neighbors": [CORE]}}, neighbors(CORE, CORE), [("bgp.neighbors", [CORE])]),
        # An object merges a list by the keys of its items.
        (
            {"bgp": {"neighbors": {"10.255.0.2": {"remote_as": 7}}}},
            neighbors(CORE),
            [(f"{CORE_PATH}.remote_as", 7)],
        ),
        (
            {"bgp": {"neighbors": {"10.255.0.2": {"remote_as": 7, "description": None}}}},
            neighbors(),
            [(CORE_PATH, {"address": "10.255.0.2", "remote_as": 7})],
        ),
        ({"bgp": {"neighbors": {"10.255.0.2": None}}}, neighbors(CORE), [(CORE_PATH, "delete")]),
        ({"subscribers": {"local": {"7": {"password": "x"}}}}, {},
         [('subscribers.local."7"', {"username": "7", "password": "x"})]),
        # null deletes; a value that must be present becomes null.
        ({"bgp": {"neighbors": {"10.255.0.2": {"description": None}}}}, neighbors(CORE),
         [(f"{CORE_PATH}.description", "delete")]),
        (
            {"demux": {"vlan_profiles": {"a": {"outer_vlan_range": None}}}},
            {"demux": {"vlan_profiles": [{"name": "a", "outer_vlan_range": "7"}]}},
            [("demux.vlan_profiles.a.outer_vlan_range", None)],
        ),
        # The members of a missing section.
        ({"bgp": {"as_number": 7}}, {"bgp": None}, [("bgp.as_number", 7)]),
        # What the gateway does not show may differ.
        ({"radius": {"secret": "x"}}, {"radius": {"secret": MASK}}, [("radius.secret", "x")]),
        ({"radius": {"secret": None}}, {"radius": {"secret": MASK}}, [("radius.secret", "delete")]),
        # A later version may have fields that this version does not have.
        ({"new": {"a": [1], "b": {"c": None}}}, {"new": {"a": [2], "b": {"c": 1}}},
         [("new.a", [1]), ("new.b.c", "delete")]),
    ],
)  # fmt: skip
def test_a_patch_becomes_operations(patch: Any, sections: Any, expected: Any) -> None:
    assert operations(patch, **sections) == expected


@pytest.mark.parametrize(
    ("patch", "sections"),
    [
        ({}, {}),
        ({"qos": {}}, {}),
        ({"qos": {"default_down": "100 Mbit/s"}}, {"qos": {"default_down": "100mbit"}}),
        ({"demux": {"idle_timeout": "5m"}}, {"demux": {"idle_timeout": 300}}),
        ({"bgp": {"neighbors": [CORE]}}, neighbors(CORE)),
        ({"bgp": {"neighbors": {"10.255.0.6": None}}}, neighbors(CORE)),
        ({"bgp": None}, {"bgp": None}),
        ({"history": {"days": 90}}, {"history": {}}),
        ({"subscribers": {"dns_servers": []}}, {"subscribers": {}}),
    ],
)
def test_what_runs_already_needs_no_operation(patch: Any, sections: Any) -> None:
    assert operations(patch, **sections) == []


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ({"radius": {"secret": MASK}}, "radius.secret"),
        ({"api": {"users": {"a": {"password_hash": MASK}}}}, "api.users.a.password_hash"),
        ({"api": {"users": [{"username": "a", "password_hash": MASK}]}}, "api.users.0.password_hash"),
    ],
)
def test_a_mask_is_no_value(patch: Any, path: str) -> None:
    with pytest.raises(GatewayApiError, match=f"{path}: must be a value, not the mask"):
        operations(patch)


@pytest.mark.parametrize(
    "patch",
    [
        {"": 1},
        {"qos": {'a"b': 1}},
        {"new": [{"a\n": 1}]},
        {"bgp": {"neighbors": {"": {"remote_as": 7}}}},
        {"x" * 2000: None},
    ],
)
def test_a_name_that_cannot_be_part_of_a_path_is_refused(patch: Any) -> None:
    with pytest.raises(GatewayApiError, match=r"must be segments joined by dots|must have at most"):
        operations(patch)


def test_a_wrong_type_is_not_the_same_as_a_number() -> None:
    (found,) = operations({"history": {"days": True}}, history={"days": 1})
    assert found == ("history.days", True)


def test_the_drift_of_a_list_has_a_line_for_each_value() -> None:
    patch = {"bgp": {"neighbors": [{**CORE, "remote_as": 7, "password": "x"}]}}
    (change,) = compare(patch, {**valid_document(), **neighbors({**CORE, "password": MASK, "bfd": True})})
    lines = [(each["path"], each["expected"], each["actual"]) for each in list_differences(change)]
    assert lines == [
        (f"{CORE_PATH}.remote_as", 7, 64513),
        (f"{CORE_PATH}.password", MASK, MASK),
        (f"{CORE_PATH}.bfd", None, True),
    ]
    results = [each["result"] for each in list_differences(change)]
    assert results == ["differs", "not compared", "differs"]
