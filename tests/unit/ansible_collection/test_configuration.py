"""Partial configurations, and the operations that a module sends for them."""

import json
import re
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from gateway_contract.base import logs
from gateway_contract.configuration import KEYS, ROOT, mask_secrets, walk
from gateway_contract.core.configuration import Edit
from gateway_contract.version import VERSION
from gatewayctl import merge_patch
from tests.support.manual import ROOT as CHECKOUT
from tests.support.workspaces import ADMIN, opened

COLLECTION = CHECKOUT / "etc/ansible"
MODULE = run_path(str(COLLECTION / "plugins/module_utils/configuration.py"))
plan_operations, merge, list_secrets = (MODULE[name] for name in ("plan_operations", "merge", "list_secrets"))
FACTORY = json.loads((CHECKOUT / "etc/factory.json").read_text())
HASH = "$2b$04$" + "a" * 53
NEW_HASH = "$2b$04$" + "b" * 53
RUNNING = {
    **FACTORY,
    "radius": {"server": "192.0.2.10", "secret": "former"},
    "api": {**FACTORY["api"], "users": [{"username": "admin", "password_hash": HASH, "role": "admin"}]},
}


def apply(folder: Path, patch: Any) -> tuple[list[str], Any]:
    """Stage a partial configuration as a module does. Return the paths of the operations, and the candidate
    as the API shows it."""
    operations = plan_operations(mask_secrets(RUNNING), patch)
    return [each["path"] for each in operations], stage(folder, operations)


def stage(folder: Path, operations: list[Any]) -> Any:
    """Stage operations, and return the candidate as the API shows it."""
    with opened(folder, RUNNING) as workspace:
        workspace.edit([Edit(each["op"], each["path"], each.get("value")) for each in operations], ADMIN)
        return mask_secrets(workspace.snapshot.candidate)


@pytest.mark.parametrize(
    "patch",
    [
        {},
        {"bgp": {}},
        {"qos": {"default_down": "100mbit"}},
        {"demux": {"trunks": ["trunk0", "trunk1"]}},
        {"radius": {"dead_time": None}},
        {"cgnat": {"enabled": True}},
        {"bgp": {"neighbors": {"10.255.0.2": {"remote_as": 64513}, "10.255.0.10": None}}},
        {"api": {"users": {"admin": {"role": "admin"}}}},
        {"subscribers": None},
    ],
)
def test_what_the_configuration_has_already_is_no_operation(patch: Any) -> None:
    assert plan_operations(mask_secrets(RUNNING), patch) == []


@pytest.mark.parametrize(
    ("patch", "paths"),
    [
        ({"qos": {"default_down": "200mbit"}}, ["qos.default_down"]),
        ({"demux": {"trunks": ["trunk0"]}}, ["demux.trunks"]),
        ({"demux": {"vlan_profiles": {"ipoe": {"type": "pppoe"}}}}, ["demux.vlan_profiles.ipoe.type"]),
        ({"bgp": {"neighbors": {"10.255.0.6": None}}}, ['bgp.neighbors."10.255.0.6"']),
        ({"bgp": {"neighbors": {"10.255.0.6": {"bfd": True}}}}, ['bgp.neighbors."10.255.0.6".bfd']),
        ({"bgp": {"neighbors": {"2001:db8::1": {"remote_as": 1}}}}, ['bgp.neighbors."2001:db8::1"']),
        ({"bgp": {"router_id": None}}, ["bgp.router_id"]),
        ({"subscribers": {"local": {"77": {"password": "abcdef"}}}}, ['subscribers.local."77".password']),
        ({"bgp": None}, ["bgp"]),
        ({"cgnat": {"enabled": 1}}, ["cgnat.enabled"]),
        ({"api": {"users": {"admin": {"password_hash": NEW_HASH}}}}, ["api.users.admin.password_hash"]),
    ],
)  # fmt: skip
def test_each_difference_is_an_operation_at_its_path(patch: Any, paths: list[str]) -> None:
    assert [each["path"] for each in plan_operations(mask_secrets(RUNNING), patch)] == paths


@pytest.mark.parametrize(
    "patch",
    [
        {"qos": {"default_down": "200mbit", "default_up": "40mbit"}, "system": {"hostname": "bng2"}},
        {"bgp": {"neighbors": {"10.255.0.2": {"description": None}, "10.255.0.10": {"remote_as": 64514}}}},
        {"bgp": {"neighbors": [{"address": "10.255.0.10", "remote_as": 64514}]}},
        {"demux": {"vlan_profiles": {"more": {"type": "pppoe", "vlan_range": "4000", "outer_vlan_range": None,
                                              "overhead_profile": "pppoe_ethernet"}}}},
        {"subscribers": {"dns_servers": ["192.0.2.53"], "pools": {"a": {"network": "203.0.113.0/24"}}}},
        {"bgp": None},
    ],
)  # fmt: skip
def test_a_patch_that_was_applied_is_no_operation_any_longer(tmp_path: Path, patch: Any) -> None:
    paths, candidate = apply(tmp_path, patch)
    assert paths
    assert plan_operations(candidate, patch) == []


@pytest.mark.parametrize(
    "patch",
    [
        {"qos": {"default_up": "9mbit"}, "demux": {"trunks": ["trunk1"]}, "cgnat": {"enabled": False}},
        {"bgp": {"neighbors": {"10.255.0.2": None, "10.255.0.6": {"description": None, "bfd": True}}}},
        {"bgp": {"neighbors": {"10.255.0.9": {"remote_as": 7, "password": None, "description": "new"}}}},
        {"bgp": {"neighbors": [{"address": "10.255.0.9", "remote_as": 7}]}},
        {
            "demux": {
                "vlan_profiles": {"ipoe": {"outer_vlan_range": None}, "pppoe": {"outer_vlan_range": None}}
            }
        },
        {"demux": {"vlan_profiles": {"more": {"type": "pppoe", "outer_vlan_range": None}}}},
        {"subscribers": {"local": {"77": {"password": "abcdef"}}, "dns_servers": ["192.0.2.53"]}},
        {"radius": {"secret": "later", "server": None}, "bgp": None},
    ],
)
def test_a_partial_configuration_has_the_same_effect_in_gatewayctl(tmp_path: Path, patch: Any) -> None:
    operations = [change.operation for change in merge_patch.compare(patch, mask_secrets(RUNNING))]
    assert apply(tmp_path / "ansible", patch)[1] == stage(tmp_path / "gatewayctl", operations)


def test_a_section_that_the_configuration_lacks_is_made_from_its_values(tmp_path: Path) -> None:
    without = {name: value for name, value in RUNNING.items() if name != "bgp"}
    patch = {
        "bgp": {"as_number": 64512, "router_id": "10.255.0.1", "neighbors": {"10.255.0.2": {"remote_as": 1}}}
    }
    with opened(tmp_path, without) as workspace:
        operations = plan_operations(without, patch)
        workspace.edit([Edit(each["op"], each["path"], each.get("value")) for each in operations], ADMIN)
        workspace.commit(ADMIN)
        assert plan_operations(workspace.snapshot.running.document, patch) == []


def test_secrets_join_the_configuration_of_the_same_items() -> None:
    config = {
        "api": {"users": {"jo": {"role": "operator"}}},
        "bgp": {"neighbors": [{"address": "192.0.2.1"}]},
    }
    secrets = {"api": {"users": {"jo": {"password_hash": HASH}}},
               "bgp": {"neighbors": {"192.0.2.1": {"password": "abcdef"}}},
               "radius": {"secret": "abcdef"}}  # fmt: skip
    assert merge(config, secrets) == {
        "api": {"users": {"jo": {"role": "operator", "password_hash": HASH}}},
        "bgp": {"neighbors": [{"address": "192.0.2.1", "password": "abcdef"}]},
        "radius": {"secret": "abcdef"},
    }
    with pytest.raises(
        ValueError, match=re.escape('bgp.neighbors."192.0.2.9": the list in config has no such item')
    ):
        merge(config, {"bgp": {"neighbors": {"192.0.2.9": {"password": "abcdef"}}}})


@pytest.mark.parametrize(
    ("patch", "rule"),
    [
        ({"radius": {"secret": "********"}}, "radius.secret: must not be ********"),
        ({"api": {"users": {"jo": {"password_hash": "********"}}}}, "api.users.jo: must not be ********"),
        ({"api": {"users": [{"password_hash": "********"}]}}, "api.users: must not be ********"),
        ({"api": {"users": {'j"o': {"role": "admin"}}}}, "api.users: 'j\"o' must not have a quotation mark"),
    ],
)  # fmt: skip
def test_a_mask_and_a_quotation_mark_are_refused_with_the_path(patch: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        plan_operations(mask_secrets(RUNNING), patch)


def test_each_secret_of_the_configuration_is_found_by_its_name() -> None:
    for path, field in walk(ROOT):
        name = path.rpartition(".")[2]
        assert bool(list_secrets({name: "text"})) == (field.secret or logs.is_secret(name))
    assert list_secrets({"api": {"users": [{"password_hash": HASH}], "token_lifetime": 60}}) == [
        "api.users.password_hash"
    ]


def test_the_collection_knows_the_keys_the_mask_and_the_version_of_the_gateway() -> None:
    assert set(MODULE["KEY_FIELDS"]) == KEYS
    assert MODULE["MASK"] == logs.MASK
    null_fields = {path.rpartition(".")[2] for path, each in walk(ROOT) if each.required and each.nullable}
    assert set(MODULE["NULL_FIELDS"]) == null_fields
    assert f"\nversion: {VERSION}\n" in (COLLECTION / "galaxy.yml").read_text()
