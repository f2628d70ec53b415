"""What accel-ppp says of its sessions, as bytes. The replies were captured from 1.14.0-152-g89637ee2."""

import re
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.daemons.accel_command_line import (
    COLUMNS,
    CommandLine,
    Endpoint,
    UnknownColumn,
    UnreadableReply,
    extract_reply,
    is_interface_name,
    load_password,
    parse_sessions,
    parse_table,
)
from gateway_core.gateways.linux.daemons.accel_ppp import IpoeInterfaces
from gateway_core.gateways.linux.daemons.source import SourceRefused, SourceSession
from tests.support.accel import Peer, table
from tests.support.running_accel import LOCALHOST
from tests.support.stack import wait_for

NOW = 1_700_000_000
KEY = "78fa5e68dbcd44c8"

#: Of `show sessions` with all columns, without those of traffic. A line ends in CRLF.
TABLE = b"""\
 netns |   ifname   |  username  |     ip      | ip6 | ip6-dp | type  | state  |  uptime  | uptime-raw |    calling-sid    |          called-sid          |        sid       | inbound-if | rate-limit \r
-------+------------+------------+-------------+-----+--------+-------+--------+----------+------------+-------------------+------------------------------+------------------+------------+------------\r
 def   | trunk0.110 | trunk0.110 | 100.64.2.10 |     |        | ipoe  | active | 00:00:05 | 5          | e2:69:92:d1:e3:2a | trunk0.110                   | 47805531253f7b23 | trunk0.110 | 15000/3000 \r
 def   | ppp0       | alice      | 100.64.0.10 |     |        | pppoe | active | 00:00:04 | 4          | e2:69:92:d1:e3:2a | trunk0.100:f2:da:9b:5e:2a:19 | 47805531253f7b24 | trunk0.100 | 20000/5000 \r
"""  # noqa: E501

#: What a subscriber can put into a user name.
USERNAMES = st.binary(max_size=127).map(lambda name: name.replace(b"\0", b"").rstrip(b" "))


def of_table(*peers: Peer) -> list[SourceSession]:
    rows = [peer.row(COLUMNS, peer.uptime) for peer in peers]
    return parse_sessions(table(list(COLUMNS), rows), NOW)


def shown_name(name: bytes) -> str:
    return re.sub("[\udc80-\udcff]", "\ufffd", name.decode(errors="surrogateescape"))


def one(**fields: Any) -> SourceSession:
    """The session that a table shows of a peer."""
    (shown,) = of_table(Peer(KEY, **fields))
    return shown


# The captures


def test_a_table_has_pppoe_and_dhcp_sessions() -> None:
    dhcp, pppoe = parse_sessions(TABLE, NOW)
    assert dhcp == SourceSession(
        key="47805531253f7b23",
        type=SessionType.DHCP,
        username="trunk0.110",
        mac_address="e2:69:92:d1:e3:2a",
        access_interface="trunk0.110",
        interface="trunk0.110",
        ip_address="100.64.2.10",
        ipv6_address=None,
        ipv6_prefix=None,
        delegated_prefixes=(),
        acct_session_id="47805531253f7b23",
        started_at=NOW - 5,
        rate_down=15_000_000,
        rate_up=3_000_000,
    )
    assert (pppoe.type, pppoe.interface, pppoe.access_interface) == ("PPPoE", "ppp0", "trunk0.100")
    assert (pppoe.username, pppoe.started_at) == ("alice", NOW - 4)


# One session


@given(names=st.lists(USERNAMES, max_size=4))
def test_a_user_name_of_any_bytes_is_one_session(names: list[bytes]) -> None:
    peers = [Peer(f"{place:016x}", username=name.decode("latin-1")) for place, name in enumerate(names)]
    shown = of_table(*peers)
    assert [session.key for session in shown] == [peer.sid for peer in peers]
    assert [session.username for session in shown] == [shown_name(name) for name in names]


def test_ipv6_is_an_address_and_its_network_and_ipv4_may_be_missing() -> None:
    shown = one(ip="", ip6="2001:db8:0:1::2/64", delegated="2001:db8:1000::/56")
    assert shown.ip_address is None
    assert (shown.ipv6_address, shown.ipv6_prefix) == ("2001:db8:0:1::2", "2001:db8:0:1::/64")
    assert shown.delegated_prefixes == ("2001:db8:1000::/56",)


@pytest.mark.parametrize("stray", ["7f3a::/-17203", "::/0", "2000::/3", "7f3a:2100::/49", "fe80::/64"])
def test_stray_memory_in_place_of_a_delegated_prefix_is_none(stray: str) -> None:
    assert one(delegated=stray).delegated_prefixes == ()


@pytest.mark.parametrize(
    ("calling", "expected"),
    [
        ("02:00:00:00:00:0A", "02:00:00:00:00:0a"),
        ("trunk0.100:02:00:00:00:00:0a", "02:00:00:00:00:0a"),
        ("trunk0.100", None),
    ],
)
def test_a_mac_address_is_taken_out_of_the_station_id(calling: str, expected: str | None) -> None:
    assert one(calling=calling).mac_address == expected


def test_only_an_active_session_of_the_gateway_is_up() -> None:
    of_another = {"type": "l2tp", "inbound": "", "calling": "192.0.2.7"}
    for fields in ({"state": "starting"}, {"state": "finishing"}, of_another):
        assert of_table(Peer(KEY, **fields)) == []


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("20000/5000", (20_000_000, 5_000_000)),
        # RADIUS has told a rate of 0: no limit, and not the default one.
        ("0/5000", (0, 5_000_000)),
        ("", (None, None)),
        ("fast", (None, None)),
        ("2147483647/1", (400_000_000_000, 1000)),
    ],
)
def test_rates_are_in_kilobits_down_and_up(rate: str, expected: tuple[int | None, int | None]) -> None:
    shown = one(rate=rate)
    assert (shown.rate_down, shown.rate_up) == expected


# Replies that are none


def test_what_is_not_a_table_with_all_columns_is_unreadable_and_a_missing_one_named() -> None:
    for reply in (
        b"",
        b"syntax error\r\n",
        TABLE.replace(b"\r", b""),
        TABLE.replace(b"inbound", b"outbound"),
    ):
        with pytest.raises(UnreadableReply):
            parse_sessions(reply, NOW)
    with pytest.raises(UnknownColumn) as caught:
        parse_sessions(b"unknown column rate-limit\r\n", NOW)
    assert caught.value.name == "rate-limit"


def test_a_reply_is_what_is_between_two_versions() -> None:
    version = b"1.14.0-152-g89637ee2\r\n"
    assert extract_reply(version + b"command unknown\r\n" + version) == b"command unknown\r\n"
    assert extract_reply(version * 2) == b""
    for received in (b"", version, version + b"x\r\n1.14", b"command unknown\r\n" * 2):
        with pytest.raises(UnreadableReply):
            extract_reply(received)


@pytest.mark.parametrize("command", ["", "show\nsessions", "show é", "x" * 1001])
def test_a_command_is_one_short_line_and_so_is_a_password(command: str) -> None:
    with pytest.raises(ValueError, match="not a command"):
        CommandLine(Endpoint(LOCALHOST, 1)).run(command)
    with pytest.raises(ValueError, match="one line"):
        CommandLine(Endpoint(LOCALHOST, 1), password="secret\nreload")


@pytest.mark.parametrize("damaged", [None, b"", b"password=secret", b"\xff\n"])
def test_a_password_is_made_once_and_only_for_its_owner(tmp_path: Path, damaged: bytes | None) -> None:
    file = tmp_path / "services" / "accel-ppp-password"
    if damaged is not None:
        file.parent.mkdir()
        file.write_bytes(damaged)
    password = load_password(file)
    assert re.fullmatch("[0-9a-f]{64}", password)
    assert file.read_text() == f"password={password}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert load_password(file) == password
    assert load_password(tmp_path / "another") != password
    with pytest.raises(SourceRefused, match=r"cannot keep the password of accel-ppp in .*: File exists"):
        load_password(tmp_path / "another" / "accel-ppp-password")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("trunk0.50.7", True), ("fifteen_letters", True), ("sixteen_letters_", False), ("", False),
     ("a b", False), ("a,b", False), ("re:x", False), ("${a}", False), ("x\n", False), ("é", False)],
)  # fmt: skip
def test_an_interface_is_one_argument_of_a_command(name: str, expected: bool) -> None:
    assert is_interface_name(name) is expected


# Any bytes


def mutated(reply: bytes) -> st.SearchStrategy[bytes]:
    def change(place: int, length: int, other: bytes) -> bytes:
        return reply[:place] + other + reply[place + length :]

    return st.builds(change, st.integers(0, len(reply)), st.integers(0, 40), st.binary(max_size=40))


@given(st.one_of(st.binary(), mutated(TABLE), mutated(b"1.14.0\r\nx\r\n1.14.0\r\n")))
def test_any_bytes_are_a_reply_or_unreadable(reply: bytes) -> None:
    for parse in (
        lambda: parse_sessions(reply, NOW),
        lambda: list(parse_table(reply)),
        lambda: extract_reply(reply),
    ):
        with suppress(UnreadableReply):
            parse()


def test_an_interface_that_is_made_again_during_a_reload_is_let_go_once_more(tmp_path: Path) -> None:
    file = tmp_path / "ipoe-interfaces"
    reloads: list[str] = []

    def make_again() -> None:
        interfaces.release("trunk0.300")
        interfaces.serve("trunk0.300")

    def reload() -> None:
        reloads.append(file.read_text())
        if len(reloads) == 3:
            make_again()

    interfaces = IpoeInterfaces(file, reload)
    with closing(interfaces):
        interfaces.serve("trunk0.300")
        wait_for("a reload", lambda: len(reloads) == 1)
        make_again()
        wait_for("all reloads", lambda: len(reloads) == 5)
    served = "interface=trunk0.300\n"
    assert reloads == [served, "", served, "", served]
