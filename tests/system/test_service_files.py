"""The services' files as FRR, pppd and accel-ppp read them."""

import os
import re
from collections import Counter
from ipaddress import IPv4Network
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings

from gateway_api.base.errors import Invalid
from gateway_api.base.vlan_names import short_name
from gateway_api.core.gateways.linux.daemons import accel_ppp as daemon
from gateway_api.core.gateways.linux.daemons.daemon import SERVICES
from tests.support.documents import put
from tests.support.frr import Frr
from tests.support.rendered import GOOD, RADIUS, checked, refusal, rendered, valid_documents
from tests.system import accel_ppp
from tests.system.pppd import Pppd

PPPD_FILES = Path(__file__).parents[2] / "packaging" / "pppoe"


# FRR's own parser.


@pytest.fixture(scope="session")
def frr(tmp_path_factory: pytest.TempPathFactory) -> Frr:
    return Frr(tmp_path_factory.mktemp("frr"))


@pytest.fixture(scope="session")
def path_to_vtysh(frr: Frr) -> str:
    """A folder for PATH in which vtysh is FRR's own."""
    return frr.path


def frr_of(document: dict[str, Any]) -> dict[str, str]:
    return {"frr.conf": rendered(document)["frr.conf"]}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bgp": None},
        {"cgnat.enabled": False},
        {"bgp": None, "cgnat.enabled": False},
        {"bgp.neighbors": []},
        {"bgp.as_number": 4294967295, "bgp.neighbors.0.remote_as": 1},
        {"cgnat.vrf_name": "fifteen_letters"},
        {"cgnat.vrf_name": "@.+-_"},
        {"cgnat.handoff_interface": "lo", "cgnat.enabled": False},
    ],
    ids=str,
)
def test_frr_takes_its_file(document: dict[str, Any], changes: dict[str, Any], path_to_vtysh: str) -> None:
    for path, changed in changes.items():
        put(document, path, changed)
    checked(rendered(document), path_to_vtysh)


#: What FRR has in its configuration without being told, besides the host's own name.
_OF_FRR_ITSELF = {"Building configuration...", "Current configuration:", "", "!", "exit", "exit-vrf", "end"}
_OF_FRR_ITSELF |= {"exit-address-family", "no ip forwarding", "no ipv6 forwarding"}
_OF_FRR_ITSELF |= {"service integrated-vtysh-config"}


def commands(lines: list[str]) -> Counter[str]:
    """What a configuration of FRR's says, without what is always so."""
    stripped = (line.strip() for line in lines)
    return Counter(
        line
        for line in stripped
        if line not in _OF_FRR_ITSELF and not line.startswith(("! ", "frr version "))
    )


def run_by_frr(frr: Frr, text: str) -> Counter[str]:
    """What FRR's daemons have, having read the text. Fails unless it is each command of it, letter by letter,
    and no other."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "frr.conf")
        file.write_text(text)
        running = commands(frr.read_back(file))
    running[f"hostname {os.uname().nodename}"] -= 1
    running["frr defaults traditional"] -= 1
    assert +running == commands(text.splitlines())
    return +running


#: All that a text may be made of, alone, first, last and in between; and what looks like something else. A ~
#: alone is refused: some take it for no value.
NASTY = [
    *(chr(code) for code in range(0x21, 0x7E)),
    *(f"{chr(code)} x" for code in range(0x21, 0x7F) if chr(code) != "|"),
    *(f"x {chr(code)}" for code in range(0x21, 0x7F)),
    *(f"x {chr(code)} x" for code in range(0x21, 0x7F) if chr(code) != "|"),
    *("x" * 80, "a b c", "! x", "x ! y", "a?b", 'say "hi', "a|b", "|x", "x |", "a |b", "||", "100% |include"),
    *("exit", "end", "no router bgp 1", "$(reboot)", "\\n", "<cr>", "[a]", "(c|d)", "%s%n%d", "LINE..."),
]


def test_frr_has_every_description_as_it_was_set(document: dict[str, Any], frr: Frr) -> None:
    document["bgp"]["neighbors"] = [
        {"address": f"10.9.{number // 200}.{number % 200 + 1}", "remote_as": 7, "description": description}
        for number, description in enumerate(NASTY)
    ]
    running = run_by_frr(frr, rendered(document)["frr.conf"])
    for one in document["bgp"]["neighbors"]:
        assert f"neighbor {one['address']} description {one['description']}" in running


@pytest.mark.parametrize("description", ["core | include x", "| x", "x | x", "a| b"])
def test_a_description_that_frr_takes_for_a_pipe_is_refused(
    document: dict[str, Any], description: str
) -> None:
    put(document, "bgp.neighbors.0.description", description)
    with pytest.raises(Invalid) as refused:
        rendered(document)
    (problem,) = refused.value.problems
    assert problem.path == "bgp.neighbors.0.description"
    assert problem.message == "must not hold a | before a space: FRR takes it for a pipe"


def test_a_description_whose_spaces_frr_drops_is_refused(document: dict[str, Any]) -> None:
    put(document, "bgp.neighbors.0.description", "to the  core")
    with pytest.raises(Invalid) as refused:
        rendered(document)
    (problem,) = refused.value.problems
    assert problem.message == "must not hold two spaces in a row: FRR keeps one"


@pytest.mark.parametrize("name", ["9", "table", "exit", "end", "vrf", "a.b", "@.+-_", "tcp", "unicast"])
def test_frr_has_the_vrf_as_it_was_set(document: dict[str, Any], name: str, frr: Frr) -> None:
    put(document, "cgnat.vrf_name", name)
    assert f"vrf {name}" in run_by_frr(frr, rendered(document)["frr.conf"])


@pytest.mark.parametrize("name", ["table", "tag", "onlink", "vrf", "nexthop-vrf", "b", "r", "e.5", "a+@"])
def test_frr_has_the_handoff_as_it_was_set(document: dict[str, Any], name: str, frr: Frr) -> None:
    document["interfaces"]["uplinks"].append(name)
    put(document, "cgnat.handoff_interface", name)
    running = run_by_frr(frr, rendered(document)["frr.conf"])
    assert f"ip route 0.0.0.0/0 {document['cgnat']['handoff_gateway']} {name}" in running


@given(document=valid_documents())
@settings(max_examples=12)
def test_frr_runs_every_valid_configuration_as_it_is_rendered(frr: Frr, document: dict[str, Any]) -> None:
    checked(frr_of(document), frr.path)
    run_by_frr(frr, rendered(document)["frr.conf"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hostname bng1\nbogus line\n", "line 2: % Unknown command"),
        ("bogus\n", "line 1: % Unknown command"),
        ("router bgp 65000\n neighbor 10.0.0.1 remote-as many\nexit\n", "line 2: % Unknown command"),
        ("router bgp 4294967296\n", "line 1: % Unknown command"),
        ("vrf cgnat\n ip route 0.0.0.0/33 10.0.0.1 eth0\nexit-vrf\n", "line 2: % Unknown command"),
    ],
)
def test_what_frr_refuses_is_refused_with_frrs_line(text: str, said: str, path_to_vtysh: str) -> None:
    error = refusal({**GOOD, "frr.conf": text}, path_to_vtysh)
    assert error.step == "check the services' files"
    assert error.reason.startswith(f"FRR refuses frr.conf: {said}")


def test_a_refusal_of_frr_has_no_path(path_to_vtysh: str) -> None:
    assert "/" not in str(refusal({"frr.conf": "bogus\n"}, path_to_vtysh))


@pytest.mark.parametrize(
    ("text", "instead"),
    [("bgp 64512", "bgp x"), ("remote-as 64513", "remote-as"), ("exit-vrf", "exit vrf")],
)
def test_a_file_that_was_rendered_and_damaged_is_refused(
    document: dict[str, Any], text: str, instead: str, path_to_vtysh: str
) -> None:
    damaged = rendered(document)["frr.conf"].replace(text, instead)
    assert "FRR refuses frr.conf: line " in refusal({"frr.conf": damaged}, path_to_vtysh).reason


# pppd's own parsers, of chap-secrets and of its RADIUS client's files.


@pytest.fixture(scope="session")
def pppd(tmp_path_factory: pytest.TempPathFactory) -> Pppd:
    return Pppd(tmp_path_factory.mktemp("pppd"))


#: All that a secret may be made of: in one, alone, first, last and in between.
SECRET_CHARACTERS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "\"'#,\\")
SECRETS = [SECRET_CHARACTERS, *(one for one in SECRET_CHARACTERS if one != "@")]
SECRETS += [f"{one}x" for one in SECRET_CHARACTERS if one != "@"]
SECRETS += [f"x{one}" for one in SECRET_CHARACTERS] + [f"x{one}x" for one in SECRET_CHARACTERS]
SECRETS += ["x" * 128, "$(reboot)", "!@x", "-", "*", "%s%n", "{x}", "${x}"]


def document_of_secrets(document: dict[str, Any]) -> list[list[str]]:
    """Puts them all into it, and gives what a line of chap-secrets has to say for each."""
    names = ["a", "7", "_", "a@b.c", "a/b", "a-", "x" * 64]
    usernames = [*names, *(f"s{number}" for number in range(len(SECRETS) - len(names)))]
    document["subscribers"] = {
        "local": [
            {"username": username, "password": secret, "ip_address": f"10.9.8.{number}" if number else None}
            for number, (username, secret) in enumerate(zip(usernames, SECRETS[:255], strict=False))
        ]
        + [
            {"username": username, "password": secret}
            for username, secret in zip(usernames[255:], SECRETS[255:], strict=True)
        ]
    }
    return [
        [one["username"], "*", one["password"], one.get("ip_address") or "*"]
        for one in document["subscribers"]["local"]
    ]


def test_pppd_reads_every_secret_as_it_was_set(document: dict[str, Any], pppd: Pppd, tmp_path: Path) -> None:
    expected = document_of_secrets(document)
    file = tmp_path / "chap-secrets"
    file.write_text(rendered(document)["chap-secrets"])
    assert pppd.words(file) == expected


@pytest.mark.parametrize(
    ("secret", "hostname"),
    [
        (SECRET_CHARACTERS[:48], "bng1"),
        (SECRET_CHARACTERS[-48:], ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])),
        ("*", "7-up.isp.example"),
        ("x" * 48, "a"),
    ],
)
def test_pppds_radius_client_reads_its_files_as_they_were_set(
    document: dict[str, Any], secret: str, hostname: str, pppd: Pppd, tmp_path: Path
) -> None:
    document["radius"] = {**RADIUS, "secret": secret}
    put(document, "system.hostname", hostname)
    files = rendered(document)
    (tmp_path / "radius-servers").write_text(files["radius-servers"])
    client = tmp_path / "radiusclient.conf"
    client.write_text(files["radiusclient.conf"].replace(str(SERVICES), str(tmp_path)))
    assert pppd.radius(client) == {
        "authserver": [["192.0.2.5", 2812]],
        "acctserver": [["192.0.2.5", 2813]],
        "nas_identifier": hostname,
        "secrets": [secret],
    }


def test_pppds_radius_client_reads_all_servers(document: dict[str, Any], pppd: Pppd, tmp_path: Path) -> None:
    further = [{"address": f"192.0.2.{number}", "secret": f"of-{number}"} for number in range(6, 13)]
    document["radius"] = {**RADIUS, "servers": further}
    files = rendered(document)
    (tmp_path / "radius-servers").write_text(files["radius-servers"])
    client = tmp_path / "radiusclient.conf"
    client.write_text(files["radiusclient.conf"].replace(str(SERVICES), str(tmp_path)))
    read = pppd.radius(client)
    addresses = [one["address"] for one in further]
    assert read["authserver"] == [["192.0.2.5", 2812], *([address, 1812] for address in addresses)]
    assert read["acctserver"] == [["192.0.2.5", 2813], *([address, 1813] for address in addresses)]
    assert read["secrets"] == [RADIUS["secret"], *(one["secret"] for one in further)]


def test_pppds_radius_client_takes_its_dictionary_and_its_port_map(pppd: Pppd) -> None:
    known = pppd.attributes(PPPD_FILES / "radius-dictionary")
    assert {"User-Name", "CHAP-Password", "Framed-IP-Address", "Acct-Session-Id"} <= set(known)
    assert {"MS-CHAP2-Response", "MS-CHAP2-Success"} <= set(known)
    assert len(known) == (PPPD_FILES / "radius-dictionary").read_text().count("ATTRIBUTE ")
    assert pppd.takes_port_map(PPPD_FILES / "radius-port-id-map")


def test_a_radius_secret_that_pppd_would_cut_off_is_refused(document: dict[str, Any]) -> None:
    document["radius"] = {**RADIUS, "secret": "x" * 49}
    with pytest.raises(Invalid) as refused:
        rendered(document)
    (problem,) = refused.value.problems
    assert (problem.path, problem.message) == (
        "radius.secret",
        "must be at most 48 characters: pppd keeps no more",
    )


# accel-ppp's grammar.


@given(valid_documents())
@settings(max_examples=40)
def test_accel_ppp_reads_every_valid_configuration_as_it_was_set(document: dict[str, Any]) -> None:
    read = accel_ppp.configuration(rendered(document)["accel-ppp.conf"])
    hostname = document["system"]["hostname"]
    assert ("ac-name", hostname) in read["pppoe"]
    network = IPv4Network(document["cgnat"]["source_range"])
    assert read["ip-pool"][0] == ("gw-ip-address", str(network[1]))
    given = [IPv4Network(part) for part, _ in read["ip-pool"][1:]]
    assert sum(part.num_addresses for part in given) == network.num_addresses - 3
    assert not any(network[place] in part for place in (0, 1, -1) for part in given)
    options = dict(read["radius"])
    assert options["nas-identifier"] == hostname
    if document["radius"]:
        servers = [accel_ppp.radius_server(value or "") for name, value in read["radius"] if name == "server"]
        radius = document["radius"]
        assert [(server["address"], server["secret"]) for server in servers] == [
            (radius["server"], radius["secret"]),
            *((further["address"], further["secret"]) for further in radius.get("servers", ())),
        ]
    trunks = document["demux"]["trunks"]
    for pattern in (value or "" for name, value in read["pppoe"] if name == "interface"):
        heads = [head for trunk in trunks for head in (trunk, short_name(trunk))]
        vlans = [f"{head}.{tags}" for head in heads for tags in ("7", "7.7")]
        assert any(re.match(pattern.removeprefix("re:").partition(",")[0], vlan) for vlan in vlans)
    # An expression would never let an interface go.
    assert "interface" not in dict(read["ipoe"])
    assert [*read][-1] == "ipoe"
    assert read["ipoe"][-1] == ("$include", str(daemon.IPOE_INTERFACES))
    assert read["cli"][-1] == ("$include", str(daemon.PASSWORD))


def test_accel_ppp_reads_every_secret_as_it_was_set(document: dict[str, Any]) -> None:
    expected = document_of_secrets(document)
    assert accel_ppp.secrets(rendered(document)["chap-secrets"]) == expected


@pytest.mark.parametrize(
    "secret",
    [SECRET_CHARACTERS[:48], SECRET_CHARACTERS[-48:], "x{", "${x}", "[x]", "auth-port=1", "=", "1812", "*"],
)
def test_accel_ppp_reads_a_radius_secret_as_it_was_set(document: dict[str, Any], secret: str) -> None:
    document["radius"] = {**RADIUS, "secret": secret}
    read = accel_ppp.configuration(rendered(document)["accel-ppp.conf"])
    assert accel_ppp.radius_server(dict(read["radius"])["server"] or "") == {
        "address": "192.0.2.5",
        "secret": secret,
        "auth-port": "2812",
        "acct-port": "2813",
    }
