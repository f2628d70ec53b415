"""The services' files as FRR reads them, and what pppd would not."""

import os
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings

from gateway_contract.base.errors import Invalid
from tests.support.documents import put
from tests.support.frr import Frr
from tests.support.rendered import GOOD, RADIUS, checked, refusal, rendered, valid_documents

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


@pytest.mark.parametrize(
    ("vrf", "handoff"),
    [
        *(("9", "table"), ("table", "tag"), ("exit", "onlink"), ("end", "nexthop-vrf"), ("vrf", "b")),
        *(("@.+-_", "e.5"), ("unicast", "a+@"), ("fifteen_letters", "fib")),
    ],
)
def test_frr_has_vrf_and_handoff_as_they_were_set(
    document: dict[str, Any], vrf: str, handoff: str, frr: Frr
) -> None:
    document["interfaces"]["uplinks"].append(handoff)
    document["cgnat"] |= {"vrf_name": vrf, "handoff_interface": handoff}
    running = run_by_frr(frr, rendered(document)["frr.conf"])
    assert f"vrf {vrf}" in running
    assert f"ip route 0.0.0.0/0 {document['cgnat']['handoff_gateway']} {handoff}" in running


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


def test_pppds_radius_client_has_the_attributes_of_its_requests_in_its_dictionary() -> None:
    text = (PPPD_FILES / "radius-dictionary").read_text()
    attribute = r"^ATTRIBUTE\s+(\S+)\s+\d+\s+(?:string|integer|ipaddr|date)(?:\s+\S+)?$"
    known = re.findall(attribute, text, re.MULTILINE)
    assert {"User-Name", "CHAP-Password", "Framed-IP-Address", "Acct-Session-Id"} <= {*known}
    assert {"MS-CHAP2-Response", "MS-CHAP2-Success"} <= {*known}
    assert len(known) == text.count("ATTRIBUTE ")


def test_a_radius_secret_that_pppd_would_cut_off_is_refused(document: dict[str, Any]) -> None:
    document["radius"] = {**RADIUS, "secret": "x" * 49}
    assert refused(document) == ("radius.secret", "must be at most 48 characters: pppd keeps no more")
