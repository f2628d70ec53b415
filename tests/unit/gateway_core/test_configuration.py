"""Which configuration documents are valid, and what is shown of one."""

import copy
import json
import string
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.base.errors import Invalid
from gateway_contract.configuration import LocalSubscriber
from gateway_core.configuration.running import MAX_DOCUMENT_BYTES, RunningConfiguration, check_size
from gateway_core.configuration.store import Unreadable
from tests.support.documents import FACTORY, SECRET_HASH, put, remove, valid_document
from tests.support.rendered import profile
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


PRINTABLE = [chr(code) for code in range(0x20, 0x7F)]

#: What at least one of the services' files would read as something else than a part of the secret.
SPECIAL_IN_A_SECRET = " \"'#,\\"

#: Line ends, as any reader may see them, and what no ASCII file holds.
NEVER = list("\n\r\t\x00\x0b\x0c\x1b\x7f\x85\u00a0\u00e9\u2028\uff03")

RADIUS = {"server": "10.0.0.5", "secret": "s3cret"}
SUBSCRIBER = {"username": "alice@isp", "password": "pw-alice", "ip_address": None}


def accepted(document: dict[str, Any]) -> bool:
    return RunningConfiguration.of(document).document == document


def refused_at(document: dict[str, Any]) -> list[str]:
    return [problem.path for problem in problems(document)]


def refused_characters(document: dict[str, Any], path: str, text: str) -> set[str]:
    """Those with which a value at the path is refused, in the place of `{}` in the text."""
    refused = set()
    for character in PRINTABLE + NEVER:
        put(document, path, text.format(character))
        try:
            RunningConfiguration.of(document)
        except Invalid as error:
            assert [problem.path for problem in error.problems] == [path]
            refused.add(character)
    return refused


@pytest.fixture
def document(document: dict[str, Any]) -> dict[str, Any]:
    """With all that subscribers may have."""
    document["bgp"]["networks"] = ["198.51.100.0/24"]
    document["subscribers"] = {
        "local": [{**SUBSCRIBER}, {**SUBSCRIBER, "username": "bob"}],
        "dns_servers": ["192.0.2.53", "192.0.2.54"],
        "ipv6_dns_servers": ["fd00::53"],
        "pools": [{"name": "a", "network": "203.0.113.0/24"}],
    }
    return document


# Values that depend on no other.

NO_INTERFACE = ("", ".", "..", "-a", "a b", "a:b", "a/b", "a\n", "sixteen_letters_", 7)
NO_IPV6_RANGE = (7, "2001:db8::1/40", "2001:db8::/64", "2000::/3", "fe80::/16", "ff00::/16", "10.0.0.0/16")
NO_ADDRESS = (7, "", "dns.isp.example", "100.64.0", "::1", "192.0.2.53/32", "192.0.2.53 ")

REFUSED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("interfaces.trunks.0", "interfaces.uplinks.1", "demux.trunks.0"), NO_INTERFACE),
    **dict.fromkeys(("cgnat.vrf_name", "cgnat.handoff_interface"), NO_INTERFACE),
    "radius.secret": ("", "x" * 49),
    # The routing tables of Linux.
    "cgnat.vrf_table": (0, 253, 254, 255, 4294967296),
    "bgp.neighbors.0.address": (
        *("::1", "::", "fe80::2", "fe80::2%eth0", "ff02::1", "::ffff:10.0.0.2", "2001:db8::/64", ""),
    ),
    # FRR would change most of these.
    "bgp.neighbors.0.description": ("x" * 81, " x", "x ", "x  y", "x | y", "x\n"),
    "bgp.neighbors.0.password": ("x" * 81,),
    # A default route is no network of subscribers.
    "bgp.networks.0": ("0.0.0.0/0", "::/0"),
    "subscribers.local.1.username": (*("", None, 7, "a b", "-a", "@isp", "a" * 65, "a#", 'a"', "a\n", "*"),),
    # pppd would take the last one for the name of a file.
    "subscribers.local.1.password": ("", None, 7, "a b", "x" * 129, "@/etc/shadow"),
    "subscribers.local.1.ip_address": ("*", *NO_ADDRESS),
    "subscribers.dns_servers.0": (None, *NO_ADDRESS),
    "subscribers.dns_servers.1": ("0.0.0.0", "224.0.0.1", "255.255.255.255"),
    "subscribers.dns_servers": (None, ["192.0.2.53"] * 2, ["192.0.2.1", "192.0.2.2", "192.0.2.3"]),
    "subscribers.ipv6_range": NO_IPV6_RANGE,
    "subscribers.delegated_range": NO_IPV6_RANGE,
    "subscribers.ipv6_dns_servers.0": (
        *(None, "192.0.2.53", "::1", "fe80::53", "2001:db8::53%eth0", "ff02::1"),
    ),
    "subscribers.pools.0.network": ("127.0.0.0/8", "224.0.0.0/8", "203.0.113.1/24", "2001:db8::/64"),
}
ACCEPTED: dict[str, tuple[Any, ...]] = {
    "radius.secret": ("x" * 48,),
    "cgnat.vrf_table": (1, 252, 256, 4294967295),
    "bgp.neighbors.0.description": ("", "!", "x" * 80),
    "bgp.neighbors.0.password": ("x" * 80,),
    "subscribers.local.1.username": ("7", "_a", "a" * 64, "alice@isp.example.net", "line/1.2-3_4"),
    "subscribers.local.1.password": ("x" * 128,),
    "subscribers": ({}, {"local": []}),
}


@pytest.mark.parametrize("path", REFUSED)
def test_a_value_that_breaks_a_rule_is_refused_by_its_path(document: dict[str, Any], path: str) -> None:
    for value in REFUSED[path]:
        wanted = copy.deepcopy(document)
        put(wanted, path, value)
        assert refused_at(wanted) == [path], value


@pytest.mark.parametrize("path", ACCEPTED)
def test_a_value_at_the_edge_of_a_rule_is_accepted(document: dict[str, Any], path: str) -> None:
    for value in ACCEPTED[path]:
        put(document, path, value)
        assert accepted(document), value


# A RADIUS server and its secret.


ANOTHER, THE_SAME = ({"address": f"10.0.0.{number}", "secret": "s3cret"} for number in (6, 5))


@pytest.mark.parametrize(
    ("radius", "refused"),
    [
        ({"server": "10.0.0.5"}, "secret"),
        ({"server": "10.0.0.5", "secret": None}, "secret"),
        ({"servers": [ANOTHER]}, "servers"),
        ({**RADIUS, "servers": [ANOTHER, THE_SAME]}, "servers.1.address"),
        ({**RADIUS, "servers": [ANOTHER]}, None),
        ({"server": None, "secret": "s3cret"}, None),
        ({}, None),
    ],
)
def test_each_radius_server_has_a_secret_and_is_named_once(
    document: dict[str, Any], radius: dict[str, Any], refused: str | None
) -> None:
    document["radius"] = radius
    if refused:
        assert refused_at(document) == [f"radius.{refused}"]
    else:
        assert accepted(document)


@pytest.mark.parametrize("path", ["radius.secret", "subscribers.local.0.password"])
def test_a_secret_may_hold_all_printable_characters_but_those_that_would_end_it_in_a_file(
    document: dict[str, Any], path: str
) -> None:
    refused = refused_characters(document, path, "a{}")
    assert refused == {*SPECIAL_IN_A_SECRET, *NEVER}
    put(document, path, "hunter2 with spaces")
    assert "hunter2" not in str(problems(document))


# VLANs belong to one profile.


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        *[(("100-200", None), (other, None), True) for other in ("200-300", "150", "50-250")],
        (("7", None), ("0007", None), True),
        (("100-200", "10-20"), ("200-300", "20-30"), True),
        (("150", "10-20"), ("1-4094", "20"), True),
        (("100-199", None), ("200-300", None), False),
        (("100-200", "10-20"), ("100-200", "21-30"), False),
        (("100-200", "10-20"), ("201-300", "10-20"), False),
        (("1-4094", None), ("1-4094", "1-4094"), False),
    ],
)
def test_vlans_of_two_profiles_do_not_overlap(
    document: dict[str, Any], one: tuple[str, str | None], other: tuple[str, str | None], overlap: bool
) -> None:
    # So that any VLAN leaves names of interfaces short enough: that is another rule.
    put(document, "interfaces.trunks", ["tr0"])
    put(document, "demux.trunks", ["tr0"])
    for first, second in ((one, other), (other, one)):
        # Of whatever type.
        profiles = [profile("a", "pppoe", *first), profile("b", "dhcp", *second)]
        document["demux"]["vlan_profiles"] = profiles
        if overlap:
            (problem,) = problems(document)
            assert (problem.path, problem.code) == ("demux.vlan_profiles.1.vlan_range", "invalid")
            assert problem.message == "must not overlap with the VLANs of a"
        else:
            assert accepted(document)


# BGP.


def test_a_neighbor_of_ipv6_has_no_family_of_ipv4(document: dict[str, Any]) -> None:
    put(document, "bgp.neighbors.0.families", ["ipv6", "ipv4"])
    assert accepted(document)
    put(document, "bgp.neighbors.0.address", "2001:db8::2")
    assert refused_at(document) == ["bgp.neighbors.0.families"]


# A neighbor's description goes into FRR's file as it is: test_configuration_render reads it back.


def test_a_description_may_hold_any_printable_character_and_no_other(document: dict[str, Any]) -> None:
    path = "bgp.neighbors.0.description"
    assert refused_characters(document, path, "core one{}two") == set(NEVER)


# Names of interfaces.

OTHERS_IN_A_NAME = set(string.ascii_letters + string.digits + "._@+-")


def test_a_name_of_an_interface_has_only_characters_that_need_no_quotes(document: dict[str, Any]) -> None:
    path, others = "interfaces.uplinks.0", {*PRINTABLE, *NEVER} - OTHERS_IN_A_NAME
    assert refused_characters(document, path, "a{}") == others
    # Nor does it begin like an option.
    assert refused_characters(document, path, "{}a") == others | {"+", "-"}


# Subscribers that the gateway itself knows.


def test_a_local_subscriber_has_a_name_a_password_and_perhaps_an_address(document: dict[str, Any]) -> None:
    bob = {"username": "bob", "password": "pw-bob", "ip_address": "100.64.0.9"}
    carol = {"username": "carol", "password": "pw-carol"}
    document["subscribers"] = {"local": [SUBSCRIBER, bob, carol]}
    assert RunningConfiguration.of(document).sections.subscribers.local == (
        LocalSubscriber("alice@isp", "pw-alice", None),
        LocalSubscriber("bob", "pw-bob", IPv4Address("100.64.0.9")),
        LocalSubscriber("carol", "pw-carol", None),
    )
    # No two have the same address.
    document["subscribers"]["local"] = [{**SUBSCRIBER, "ip_address": "100.64.0.9"}, bob]
    assert refused_at(document) == ["subscribers.local.1.ip_address"]
    del document["subscribers"]
    held = RunningConfiguration.of(document).sections.subscribers
    assert (held.local, held.dns_servers, held.ipv6_range, held.delegated_length) == ((), (), None, 56)


# The DNS servers of subscribers.


# The IPv6 networks of subscribers.


@pytest.mark.parametrize(
    ("ranges", "field"),
    [
        ({"delegated_range": "2001:db8::/56"}, "delegated_length"),
        ({"delegated_range": "2001:db8::/48", "delegated_length": 47}, "delegated_length"),
        ({"delegated_range": "2001:db8::/40", "ipv6_range": "2001:db8::/48"}, "delegated_range"),
    ],
)
def test_a_prefix_is_of_one_range_that_is_larger(
    document: dict[str, Any], ranges: dict[str, object], field: str
) -> None:
    document["subscribers"] = ranges
    assert refused_at(document) == [f"subscribers.{field}"]


# Further pools.


def test_a_pool_overlaps_with_no_other_addresses_of_subscribers(document: dict[str, Any]) -> None:
    put(document, "cgnat.source_range", "100.64.0.0/16")
    pools = [{"name": "a", "network": "203.0.113.0/24"}, {"name": "b", "network": "100.65.0.0/16"}]
    document["subscribers"] = {"pools": pools}
    assert accepted(document)
    for network in ("100.64.8.0/24", "100.64.0.0/15", "203.0.113.128/25"):
        pools[1]["network"] = network
        assert refused_at(document) == ["subscribers.pools.1.network"]


# What items are known by.


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("demux.vlan_profiles", "name"),
        ("api.users", "username"),
        ("bgp.neighbors", "address"),
        ("subscribers.local", "username"),
    ],
)
def test_no_two_items_have_the_same_key(document: dict[str, Any], path: str, key: str) -> None:
    section, name = path.split(".")
    assert accepted(document)
    one, other = document[section][name]
    other[key] = one[key]
    assert refused_at(document) == [path]
