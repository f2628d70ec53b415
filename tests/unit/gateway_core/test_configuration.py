"""Which configuration documents are valid, and what is shown of one."""

import copy
import json
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.base.errors import Invalid
from gateway_core.configuration.running import MAX_DOCUMENT_BYTES, RunningConfiguration, check_size
from gateway_core.configuration.store import Unreadable
from tests.support.documents import FACTORY, SECRET_HASH, put, remove, valid_document
from tests.support.workspaces import problems

#: A user like the document's own.
USER = {"username": "admin", "password_hash": SECRET_HASH, "role": "admin"}

#: The sections that must be there.
SECTIONS = ("system", "interfaces", "radius", "cgnat", "qos", "demux", "api")


@pytest.fixture
def bare(document: dict[str, Any]) -> dict[str, Any]:
    """The least that is valid."""
    del document["bgp"], document["api"]["token_lifetime"]
    document["radius"] = {}
    return document


def test_the_factory_document_with_users_is_valid(document: dict[str, Any]) -> None:
    sections = RunningConfiguration.of(document).sections
    assert sections.system.hostname == "bng1"
    assert sections.cgnat.handoff_gateway == IPv4Address("10.255.1.2")
    assert sections.cgnat.source_range == IPv4Network("100.64.0.0/10")
    assert sections.cgnat.subscriber_gateway == IPv4Address("100.64.0.1")
    assert (sections.qos.default_down, sections.qos.default_up) == (100_000_000, 20_000_000)
    assert [user.username for user in sections.api.users] == ["admin", "operator"]


def test_the_factory_document_lacks_nothing_but_an_admin() -> None:
    assert [p.path for p in problems(json.loads(FACTORY.read_text()))] == ["api.users"]


def test_what_may_be_left_out_has_its_default(bare: dict[str, Any]) -> None:
    sections = RunningConfiguration.of(bare).sections
    assert sections.bgp is None
    assert sections.api.token_lifetime == 3600
    radius = sections.radius
    assert (radius.server, radius.secret) == (None, None)
    assert (radius.authentication_port, radius.accounting_port) == (1812, 1813)


#: Values that are refused at their path.
BROKEN: dict[str, tuple[Any, ...]] = {
    # Null is none.
    **dict.fromkeys(("interfaces.trunks.0", "demux.vlan_profiles.0", "api.users.0.role"), (None,)),
    "system.hostname": (None, "", "-bng", "a" * 64, "bng1\n"),
    "interfaces.trunks": (None, "trunk0", ["trunk0", "trunk1", "trunk0"]),
    "radius.server": ("10.0.0.256", 167772161),
    "radius.authentication_port": (0, 65536),
    "radius.accounting_port": ("1813",),
    "radius.secret": ("",),
    "cgnat.enabled": ("yes",),
    "cgnat.vrf_name": ("vrf of sixteen_c", "default"),
    "cgnat.vrf_table": (None, True, 100.0),
    "cgnat.handoff_interface": ("absent0",),
    "cgnat.handoff_gateway": ("10.255.1",),
    "cgnat.source_range": ("100.64.0.1/10", "100.64.0.0/33", "100.64.0.0/31", "fd00::/8", "127.0.0.0/8"),
    "qos.default_down": ("fast", "0", "401gbit"),
    "qos.default_up": (20_000_000,),
    "demux.trunks": (["trunk0", "trunk2"], ["trunk0", "trunk0"]),
    "demux.vlan_profiles": ({},),
    "demux.vlan_profiles.0.name": ("1st",),
    "demux.vlan_profiles.1.type": ("PPPoE",),
    "demux.vlan_profiles.0.vlan_range": ("0-5", "4000-4095", "300-200", " 5", 5),
    "demux.vlan_profiles.1.overhead_profile": ("atm",),
    "demux.rate_limits.vlans_per_second": (0,),
    "demux.rate_limits.max_vlans": (4094 * 4094 + 1,),
    "demux.idle_timeout": (-1,),
    "api.enabled": ("true",),
    "api.token_lifetime": (None, 59, 86401),
    "api.users": (
        *({"admin": USER}, [], [{**USER, "role": "operator"}]),
        [USER, {**USER, "role": "operator"}],
    ),
    "api.users.1": ("operator",),
    "api.users.0.username": ("ad min", "a" * 65),
    "api.users.0.password_hash": (
        *(SECRET_HASH[:-1], SECRET_HASH + "\n"),
        *(SECRET_HASH.replace("$04$", f"${cost}$") for cost in ("03", "15")),
    ),
    "api.users.1.role": ("root",),
    "bgp.as_number": (0, 2**32),
    "bgp.router_id": ("router",),
    "bgp.neighbors.1.remote_as": ("64513",),
    "bgp": ([],),
    **dict.fromkeys(SECTIONS, ([], None)),
}


def test_a_broken_value_is_named_by_its_path() -> None:
    for path, values in BROKEN.items():
        for value in values:
            document = valid_document()
            put(document, path, value)
            assert [(p.path, p.code) for p in problems(document)] == [(path, "invalid")]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("api", {"enabled": False}),
        ("demux.vlan_profiles.0.vlan_range", "4094"),
        # It need not exist while CGNAT is off.
        ("cgnat", {**valid_document()["cgnat"], "enabled": False, "handoff_interface": "absent0"}),
        *(("interfaces.uplinks.0", name) for name in ("a", "eth0.100", "fifteen_letters", "...", "a@b")),
        *((path, None) for path in ("radius.server", "demux.vlan_profiles.1.outer_vlan_range", "bgp")),
    ],
)
def test_a_value_at_the_edge_is_valid(document: dict[str, Any], path: str, value: Any) -> None:
    put(document, path, value)
    assert RunningConfiguration.of(document).document == document


def test_a_name_that_another_interface_has_is_refused() -> None:
    for path, value, named in (
        ("interfaces.trunks", ["trunk0", "trunk1", "lo"], "interfaces.trunks"),
        ("interfaces.uplinks", ["trunk0", "cgnat0"], "interfaces.uplinks"),
        ("interfaces.uplinks", ["cgnat0", "cgnat"], "cgnat.vrf_name"),
        *(("cgnat.vrf_name", name, "cgnat.vrf_name") for name in ("trunk1", "lo", "trunk1.7.100")),
    ):
        document = valid_document()
        put(document, path, value)
        assert [p.path for p in problems(document)] == [named]


def test_what_is_missing_is_named_by_its_path() -> None:
    for path in (
        *(*SECTIONS, "system.hostname", "demux.vlan_profiles.1.outer_vlan_range"),
        *("demux.rate_limits.burst", "api.users.1.password_hash", "bgp.router_id"),
    ):
        document = valid_document()
        remove(document, path)
        assert [(p.path, p.code) for p in problems(document)] == [(path, "missing")]


def test_an_unknown_key_is_named_by_its_path() -> None:
    for path in ("syst", "demux.vlan_profiles.0.vlans", "demux.rate_limits.max", "api.users.1.password"):
        document = valid_document()
        put(document, path, "anything")
        assert [(p.path, p.code) for p in problems(document)] == [(path, "unknown")]


def test_all_that_is_wrong_is_named_at_once_without_its_value(document: dict[str, Any]) -> None:
    put(document, "system.hostname", "-")
    put(document, "qos.default_up", "fast")
    put(document, "api.users.1.password_hash", "plain text")
    remove(document, "demux.idle_timeout")
    wrong = {"system.hostname", "qos.default_up", "api.users.1.password_hash", "demux.idle_timeout"}
    assert {p.path for p in problems(document)} == wrong
    with pytest.raises(Invalid, match=r"api\.users\.1\.password_hash: must be a bcrypt hash") as refused:
        RunningConfiguration.of(document)
    assert "plain text" not in str(refused.value)
    # And all names that refer to nothing.
    document = valid_document()
    put(document, "demux.trunks", ["absent0"])
    put(document, "cgnat.handoff_interface", "absent1")
    assert {p.path for p in problems(document)} == {"demux.trunks", "cgnat.handoff_interface"}


def test_a_configuration_without_users_has_those_of_another_file(
    document: dict[str, Any], tmp_path: Path
) -> None:
    without = copy.deepcopy(document)
    without["api"]["users"] = []
    (tmp_path / "factory.json").write_text(json.dumps(without))
    (tmp_path / "users.json").write_text(json.dumps(document["api"]["users"]))
    read = RunningConfiguration.read_first(tmp_path / "factory.json", tmp_path / "users.json")
    assert read == RunningConfiguration.of(document)
    # One with users needs no other file.
    (tmp_path / "factory.json").write_text(json.dumps(document))
    for users in ((), (tmp_path / "absent.json",)):
        assert RunningConfiguration.read_first(tmp_path / "factory.json", *users) == read


def test_a_file_without_a_json_object_is_unreadable(tmp_path: Path) -> None:
    for content in (
        *(b"", b"{} {}", b'{"system": NaN}', b"[]", b"null", b'{"a": "\xff"}', b"\0", b"[" * 100_000),
    ):
        (tmp_path / "running.json").write_bytes(content)
        with pytest.raises(Unreadable, match=r"running\.json"):
            RunningConfiguration.read_first(tmp_path / "running.json")
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(Unreadable, match=path.name):
            RunningConfiguration.read_first(path)


def test_a_configuration_has_at_most_a_mebibyte_of_json() -> None:
    most = "x" * ((1 << 20) - len(msgspec.json.encode({"text": ""})))
    check_size({"text": most})
    with pytest.raises(Invalid, match=f"at most {MAX_DOCUMENT_BYTES} bytes of JSON"):
        check_size({"text": f"{most}x"})


@pytest.mark.parametrize("other", ["enp1s0", "np1s0", "xnp1s0"])
def test_trunks_whose_vlans_could_have_the_same_short_name_are_refused(
    document: dict[str, Any], other: str
) -> None:
    document["interfaces"]["trunks"] = ["wanp1s0", other]
    document["demux"]["trunks"] = ["wanp1s0"]
    document["demux"]["vlan_profiles"][1].update(vlan_range="100-999", outer_vlan_range="10")
    RunningConfiguration.of(document)
    document["demux"]["vlan_profiles"][1].update(vlan_range="100-1000", outer_vlan_range="100")
    assert [problem.path for problem in problems(document)] == ["demux.vlan_profiles.1.vlan_range"]
    # Nor is a VRF named like one of these.
    document["interfaces"]["trunks"] = document["demux"]["trunks"] = ["enp129s0f1"]
    document["cgnat"]["vrf_name"] = "9s0f1.50.7"
    assert [problem.path for problem in problems(document)] == ["cgnat.vrf_name"]
