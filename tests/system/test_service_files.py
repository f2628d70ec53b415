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


def refused(document: dict[str, Any]) -> tuple[str, str]:
    """The path and the message of the one problem of a document that cannot be rendered."""
    with pytest.raises(Invalid) as caught:
        rendered(document)
    (problem,) = caught.value.problems
    return problem.path, problem.message


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


def test_a_description_that_frr_would_change_is_refused(document: dict[str, Any]) -> None:
    path = "bgp.neighbors.0.description"
    pipe = "must not hold a | before a space: FRR takes it for a pipe"
    for description in ("core | include x", "| x", "x | x", "a| b"):
        put(document, path, description)
        assert refused(document) == (path, pipe)
    put(document, path, "to the  core")
    assert refused(document) == (path, "must not hold two spaces in a row: FRR keeps one")


@pytest.mark.parametrize("name", ["9", "table", "exit", "end", "vrf", "@.+-_", "unicast", "fifteen_letters"])
def test_frr_has_the_vrf_as_it_was_set(document: dict[str, Any], name: str, frr: Frr) -> None:
    put(document, "cgnat.vrf_name", name)
    assert f"vrf {name}" in run_by_frr(frr, rendered(document)["frr.conf"])


@pytest.mark.parametrize("name", ["table", "tag", "onlink", "nexthop-vrf", "b", "e.5", "a+@"])
def test_frr_has_the_handoff_as_it_was_set(document: dict[str, Any], name: str, frr: Frr) -> None:
    document["interfaces"]["uplinks"].append(name)
    put(document, "cgnat.handoff_interface", name)
    running = run_by_frr(frr, rendered(document)["frr.conf"])
    assert f"ip route 0.0.0.0/0 {document['cgnat']['handoff_gateway']} {name}" in running


@given(document=valid_documents())
@settings(max_examples=12)
def test_frr_runs_every_valid_configuration_as_it_is_rendered(frr: Frr, document: dict[str, Any]) -> None:
    files = rendered(document)
    checked({"frr.conf": files["frr.conf"]}, frr.path)
    run_by_frr(frr, files["frr.conf"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hostname bng1\nbogus line\n", "line 2: % Unknown command"),
        ("router bgp 4294967296\n", "line 1: % Unknown command"),
        ("vrf cgnat\n ip route 0.0.0.0/33 10.0.0.1 eth0\nexit-vrf\n", "line 2: % Unknown command"),
    ],
)
def test_a_file_that_frr_refuses_is_refused_with_the_line_of_frr_and_no_path(
    text: str, said: str, frr: Frr
) -> None:
    error = refusal({**GOOD, "frr.conf": text}, frr.path)
    assert error.step == "check the services' files"
    assert error.reason.startswith(f"FRR refuses frr.conf: {said}")
    assert "/" not in str(refusal({"frr.conf": "bogus\n"}, frr.path))


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
    local: list[dict[str, Any]] = [
        {"username": username, "password": secret}
        for username, secret in zip(usernames, SECRETS, strict=True)
    ]
    for number in range(1, 255):
        local[number]["ip_address"] = f"10.9.8.{number}"
    document["subscribers"] = {"local": local}
    return [[one["username"], "*", one["password"], one.get("ip_address") or "*"] for one in local]


def test_pppd_reads_every_secret_as_it_was_set(document: dict[str, Any], pppd: Pppd, tmp_path: Path) -> None:
    expected = document_of_secrets(document)
    file = tmp_path / "chap-secrets"
    file.write_text(rendered(document)["chap-secrets"])
    assert pppd.words(file) == expected


def radius_of(pppd: Pppd, document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What pppd's RADIUS client reads in its files."""
    files = rendered(document)
    (folder / "radius-servers").write_text(files["radius-servers"])
    client = folder / "radiusclient.conf"
    client.write_text(files["radiusclient.conf"].replace(str(SERVICES), str(folder)))
    return pppd.radius(client)


@pytest.mark.parametrize(
    ("secret", "hostname"),
    [
        (SECRET_CHARACTERS[:48], "bng1"),
        (SECRET_CHARACTERS[-48:], ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])),
        ("*", "7-up.isp.example"),
    ],
)
def test_pppds_radius_client_reads_its_files_as_they_were_set(
    document: dict[str, Any], secret: str, hostname: str, pppd: Pppd, tmp_path: Path
) -> None:
    further = [{"address": f"192.0.2.{number}", "secret": f"of-{number}"} for number in range(6, 13)]
    document["radius"] = {**RADIUS, "secret": secret, "servers": further}
    put(document, "system.hostname", hostname)
    addresses = [one["address"] for one in further]
    assert radius_of(pppd, document, tmp_path) == {
        "authserver": [["192.0.2.5", 2812], *([address, 1812] for address in addresses)],
        "acctserver": [["192.0.2.5", 2813], *([address, 1813] for address in addresses)],
        "nas_identifier": hostname,
        "secrets": [secret, *(one["secret"] for one in further)],
    }


def test_pppds_radius_client_takes_its_dictionary_and_its_port_map(pppd: Pppd) -> None:
    known = pppd.attributes(PPPD_FILES / "radius-dictionary")
    assert {"User-Name", "CHAP-Password", "Framed-IP-Address", "Acct-Session-Id"} <= set(known)
    assert {"MS-CHAP2-Response", "MS-CHAP2-Success"} <= set(known)
    assert len(known) == (PPPD_FILES / "radius-dictionary").read_text().count("ATTRIBUTE ")
    assert pppd.takes_port_map(PPPD_FILES / "radius-port-id-map")


def test_a_radius_secret_that_pppd_would_cut_off_is_refused(document: dict[str, Any]) -> None:
    document["radius"] = {**RADIUS, "secret": "x" * 49}
    assert refused(document) == ("radius.secret", "must be at most 48 characters: pppd keeps no more")


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
