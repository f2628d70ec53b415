"""Where deliveries may go: the form of a URL, and the addresses that are denied."""

from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from urllib3.util import parse_url

from gateway_api.base.receivers import Denied, check, checked_url
from gateway_api.hub.sender import connect

#: Hosts as a URL has them, each of which means an address that nothing is delivered to.
NEVER = [
    *("169.254.169.254", "169.254.0.0", "169.254.255.255", "169.254.1", "2852039166", "0xA9FEA9FE"),
    *("025177524776", "0xa9.0xfe.0xa9.0xfe", "0251.254.0xa9.254", "169.254.43518", "0000251.0376.00251.0376"),
    *("[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[0000:0000:0000:0000:0000:FFFF:A9FE:A9FE]"),
    *("[::169.254.169.254]", "[::ffff:0:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe:1::9]"),
    *("[64:ff9b:1::a9fe:a9fe]", "[::ffff:169.254.169.254%25lo]", "[fd00:ec2::254]"),
    *("[fe80::1]", "[FE80::1]", "[febf:ffff::1]", "[fe80::1%25eth0]", "[fe80::1%eth0]"),
    *("0.0.0.0", "0", "00", "0x0", "0.0", "000000000000", "0.1.2.3", "1", "[::]", "[0::0]", "[::0.1.2.3]"),
    *("[::%25lo]", "[::ffff:0:0]", "[64:ff9b::]", "[2002::1]"),
    *("224.0.0.1", "239.255.255.255", "0xe0000001", "3758096385", "0340.0.0.1", "224.1"),
    *("[ff02::1]", "[ff00::]", "[ff0e::1:2]", "[::ffff:224.0.0.1]", "[64:ff9b::e000:1]", "[2002:e000:1::]"),
    *("255.255.255.255", "4294967295", "0xffffffff", "037777777777", "255.255.65535"),
    *("[::ffff:255.255.255.255]", "[64:ff9b::ffff:ffff]", "[2002:ffff:ffff::]"),
]
LEGAL = [
    *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001", "127.255.255.254", "[::1]"),
    *("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "198.18.0.1", "192.0.2.1", "8.8.8.8"),
    *("[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[64:ff9b::8.8.8.8]", "[2002:808:808::1]"),
    *("[fd00::1]", "[fc00::1]", "[2001:db8::1]", "[2606:4700::1111]", "169.253.255.255", "169.255.0.0"),
    *("223.255.255.255", "1.0.0.0", "255.255.255.254", "[fec0::1]", "[fe7f::1]"),
]
NAMES = [
    *("localhost", "example.com", "example.com.", "a-b.example", "169.254.169.254.nip.io", "a_b.example"),
    *("xn--bcher-kva.example", "a" * 63 + ".example", "a123456789." * 22 + "a" * 11, "1a", "0xg", "1.a"),
]


def test_a_url_with_an_address_that_is_never_delivered_to_is_refused() -> None:
    for host in NEVER:
        for scheme in ("http", "https"):
            with pytest.raises(ValueError, match="link-local, unspecified, multicast or broadcast"):
                checked_url(f"{scheme}://{host}:8080/hook")


def test_a_url_with_a_private_a_public_or_a_loopback_address_or_a_name_is_taken() -> None:
    for host in (*LEGAL, *NAMES):
        checked_url(f"http://{host}/hook")
        checked_url(f"HtTpS://{host}:65535/hook?a=b%20c&d")


def test_a_url_that_is_no_receivers_is_refused_with_the_rule() -> None:
    checked_url("http://example.com/" + "a" * (2048 - len("http://example.com/")))
    for url, rule in (
        ("", "printable"),
        *(
            (f"http://example.com/{c}", "printable")
            for c in (" ", "\t", "\n", "\r", "\0", "\x7f", "é", "\uff11")
        ),
        ("http://\uff11\uff16\uff19.254.169.254/", "printable"),
        ("http://169\u3002254\u3002169\u3002254/", "printable"),
        (" http://example.com", "printable"),
        ("http://example.com\\@127.0.0.1/", "backslash"),
        ("http:\\\\example.com", "backslash"),
        *((url, "begin with http") for url in ("ftp://example.com", "file:///etc/passwd", "gopher://a/")),
        *((url, "begin with http") for url in ("example.com", "//example.com/", "/hook", "javascript:0")),
        *((url, "begin with http") for url in ("httpx://example.com", "http+unix://example", "unix:/run/x")),
        *((url, "user or a password") for url in ("http://u@example.com/", "http://u:p@example.com/")),
        *((url, "user or a password") for url in ("http://@example.com/", "http://a@b@example.com/")),
        *((url, "user or a password") for url in ("http://:@example.com/", "http://127.0.0.1@example.com")),
        *(
            (url, "fragment")
            for url in ("http://example.com/#a", "http://example.com#", "http://example.com/?a#b")
        ),
        *(
            (url, "host")
            for url in ("http://", "http:", "http:///hook", "http://:80/", "http://?a", "https:a")
        ),
        *((f"http://{host}/", "host") for host in ("*", "a,b", "{a}", "a'", "a:1:2", "::1")),
        *((f"http://{host}/", "percent") for host in ("%24(id);", "%61", "a%2eb", "a%", "127.0.0.%31")),
        *(
            (f"http://example.com:{port}/", "port from 1 to 65535")
            for port in ("0", "00", "65536", "-1", "a", "99999999999", "8_0", "+8")
        ),
        *((f"http://[::1]:{port}/", "port from 1 to 65535") for port in ("0", "65536", "x")),
        *((f"http://{host}/", "IPv6") for host in ("[::1", "::1]", "[1.2.3.4]", "[example.com]", "[]")),
        *((f"http://{host}/", "IPv6") for host in ("[v1.x]", "[::1]x", "[::1]80", "[1::2::3]", "[::1%]]")),
        *((f"http://{host}/", "zone") for host in ("[::1%25lo]", "[::1%lo]", "[fd00::1%25eth0]")),
        *((f"http://{host}/", "labels") for host in ("a..b", ".a", "a..", ".", "..", f"{'a' * 64}.example")),
        ("http://" + "a123456789." * 23 + "a", "253"),
        *(
            (f"http://{host}/", "number")
            for host in ("256.1.1.1", "1.2.3.4.5", "127.0.0.1.", "1.", "08.1.1.1")
        ),
        *((f"http://{host}/", "number") for host in ("4294967296", "0x100000000", "a.0x", "host.1")),
        ("http://example.com/" + "a" * (2049 - len("http://example.com/")), "2048"),
    ):
        with pytest.raises(ValueError, match=rule):
            checked_url(url)


@given(st.from_regex(r"\Ahttps?://[][A-Za-z0-9.:%_x-]{1,80}(/[!-~]{0,9})?\Z"))
def test_a_url_that_is_taken_can_be_sent_to(url: str) -> None:
    try:
        checked_url(url)
    except ValueError:
        return
    prepared = requests.Request("POST", url).prepare()
    host = parse_url(str(prepared.url)).host or ""
    assert host.strip("[]") == (urlsplit(url).hostname or "")
    # As getaddrinfo would.
    host.encode("idna")


def test_a_denied_network_denies_its_addresses_in_every_spelling() -> None:
    for address, network in (
        ("10.1.2.3", "10.0.0.0/8"),
        ("10.1.2.3", "10.1.2.3/32"),
        ("10.1.2.3", "0.0.0.0/0"),
        ("127.0.0.1", "127.0.0.0/8"),
        ("::ffff:10.1.2.3", "10.0.0.0/8"),
        ("::10.1.2.3", "10.0.0.0/8"),
        ("64:ff9b::10.1.2.3", "10.0.0.0/8"),
        ("2002:a01:203::1", "10.0.0.0/8"),
        ("2001:db8::1", "2001:db8::/32"),
        ("2001:db8::1", "2001:db8::1/128"),
        ("2001:db8::1", "::/0"),
        ("64:ff9b::10.1.2.3", "64:ff9b::/96"),
        ("2002:a01:203::1", "2002::/16"),
        ("::1", "::1/128"),
    ):
        with pytest.raises(Denied):
            check(ip_address(address), ["198.51.100.0/24", network])


def test_a_denied_network_denies_no_other_address() -> None:
    for address, network in (
        ("11.0.0.0", "10.0.0.0/8"),
        ("2001:db9::", "2001:db8::/32"),
        ("::1", "0.0.0.0/0"),
        ("127.0.0.1", "::/0"),
    ):
        check(ip_address(address), [network])


def test_a_denied_network_is_denied_where_it_is_connected_to() -> None:
    with pytest.raises(Denied):
        connect("127.0.0.1", 9, 1.0, lambda: ["127.0.0.0/8"])


def test_an_attempt_without_time_left_does_not_connect() -> None:
    with pytest.raises(TimeoutError):
        connect("127.0.0.1", 9, 0.0, lambda: ())
