"""Targets of commands: what a text can name a session by."""

import pytest

from gateway_contract.base.search import Kind
from gatewayctl.sessions import parse_target

ID, USER, IP, MAC = Kind


@pytest.mark.parametrize(
    ("text", "meanings"),
    [
        ("alice", {USER: "alice"}),
        ("120", {ID: "120", USER: "120"}),
        ("447700900123", {ID: "447700900123", USER: "447700900123", MAC: "44:77:00:90:01:23"}),
        ("079512345678", {USER: "079512345678", MAC: "07:95:12:34:56:78"}),
        ("9223372036854775808", {USER: "9223372036854775808"}),
        ("0120", {USER: "0120"}),
        ("100.64.0.4", {USER: "100.64.0.4", IP: "100.64.0.4"}),
        ("2001:DB8::5", {USER: "2001:DB8::5", IP: "2001:db8::5"}),
        ("0200-0000-0005", {USER: "0200-0000-0005", MAC: "02:00:00:00:00:05"}),
        ("id:120", {ID: "120"}),
        ("user:120", {USER: "120"}),
        ("user:mac:x", {USER: "mac:x"}),
        ("ip:2001:DB8::5", {IP: "2001:db8::5"}),
        ("mac:0200.0000.0005", {MAC: "02:00:00:00:00:05"}),
        ("realm:alice", {USER: "realm:alice"}),
    ],
)
def test_a_text_is_all_that_it_can_be_unless_it_says_what_it_is(text: str, meanings: dict[Kind, str]) -> None:
    assert parse_target(text).meanings == meanings


@pytest.mark.parametrize("text", ["", "id:", "id:alice", "id:0", "user:", "ip:alice", "mac:02:00"])
def test_a_text_that_cannot_be_what_it_says_is_no_target(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_target(text)
