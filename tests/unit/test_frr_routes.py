"""FRR's JSON of the RIB, and its BGP summary with any bytes."""

import json
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_api.core.gateways.linux.program import Ended
from gateway_api.core.gateways.linux.routing import frr
from gateway_api.core.gateways.linux.routing.frr import Frr, FrrFolders, RoutingUnavailable, parsed_routes
from gateway_api.wire.core.network import Route

#: FRR 8.4.4, shortened.
CONNECTED: dict[str, Any] = {
    "prefix": "10.255.0.0/30",
    "prefixLen": 30,
    "protocol": "connected",
    "vrfName": "default",
    "selected": True,
    "distance": 0,
    "metric": 0,
    "installed": True,
    "table": 254,
    "uptime": "00:00:35",
    "nexthops": [
        {"flags": 3, "fib": True, "directlyConnected": True, "interfaceName": "va", "active": True},
    ],
}
BGP: dict[str, Any] = {
    **CONNECTED,
    "prefix": "203.0.113.0/24",
    "protocol": "bgp",
    "distance": 20,
    "nexthops": [
        {"flags": 3, "fib": True, "ip": "10.255.0.2", "afi": "ipv4", "interfaceName": "va", "weight": 1},
    ],
}
IN_VRF: dict[str, Any] = {
    **BGP,
    "prefix": "0.0.0.0/0",
    "protocol": "static",
    "vrfName": "cgnat",
    "table": 100,
    "nexthops": [{"fib": True, "ip": "10.255.1.2", "interfaceName": "cgnat0"}],
}


def pretty(*vrfs: list[dict[str, Any]]) -> bytes:
    """As FRR 8 prints them: an object for each VRF."""
    texts = [json.dumps({rib["prefix"]: [rib] for rib in ribs}, indent=2) + "\n" for ribs in vrfs]
    return "".join(texts).encode()


def compact(**vrfs: list[dict[str, Any]]) -> bytes:
    """As FRR 10 prints them: one object, with a line for each prefix."""
    texts = []
    for name, ribs in vrfs.items():
        lines = [f"{json.dumps(rib['prefix'])}:[{json.dumps(rib)}]\n" for rib in ribs]
        texts.append(f'"{name}":{{{",".join(lines)}}}\n')
    return f"{{{','.join(texts)}}}\n".encode()


ROUTES = (
    Route(
        "10.255.0.0/30", None, "va", protocol="kernel", scope="link", type="unicast",
        table="main", metric=None, prefsrc=None, session_id=None,
    ),
    Route(
        "203.0.113.0/24", "10.255.0.2", "va", protocol="bgp", scope="global", type="unicast",
        table="main", metric=20, prefsrc=None, session_id=None,
    ),
    Route(
        "0.0.0.0/0", "10.255.1.2", "cgnat0", protocol="static", scope="global", type="unicast",
        table="100", metric=20, prefsrc=None, session_id=None,
    ),
)  # fmt: skip


def test_the_routes_of_all_vrfs_are_read_as_frr_8_prints_them() -> None:
    assert parsed_routes(pretty([CONNECTED, BGP], [IN_VRF])) == ROUTES


def test_the_routes_of_all_vrfs_are_read_as_frr_10_prints_them() -> None:
    assert parsed_routes(compact(default=[CONNECTED, BGP], cgnat=[IN_VRF])) == ROUTES


@pytest.mark.parametrize("printed", [b"", b"{}\n", b"{\n}\n{\n}\n", b"{}\n{}\n{}\n", b'{"default":{}\n}\n'])
def test_no_routes_are_none(printed: bytes) -> None:
    assert parsed_routes(printed) == ()


def test_each_next_hop_in_use_is_a_route() -> None:
    """A recursive one is followed by those that it stands for."""
    rib = deepcopy(BGP)
    rib["nexthops"] = [
        {"ip": "10.9.0.5", "active": True, "recursive": True},
        {"fib": True, "ip": "10.1.0.8", "interfaceName": "y1", "resolver": True},
        {"fib": True, "ip": "10.1.0.9", "interfaceName": "y2", "resolver": True},
    ]
    found = parsed_routes(pretty([rib]))
    assert [(route.gateway, route.dev) for route in found] == [("10.1.0.8", "y1"), ("10.1.0.9", "y2")]


def test_a_route_that_another_beats_is_left_out() -> None:
    beaten = {**BGP, "prefix": "10.255.0.0/30", "selected": False}
    assert parsed_routes(pretty([beaten])) == ()


def test_a_network_on_two_interfaces_is_there_twice() -> None:
    other = {**CONNECTED, "selected": False, "nexthops": [{"fib": True, "interfaceName": "vb"}]}
    printed = json.dumps({"10.255.0.0/30": [CONNECTED, other]}).encode()
    assert [route.dev for route in parsed_routes(printed)] == ["va", "vb"]


def test_the_hosts_own_address_is_no_route() -> None:
    assert parsed_routes(pretty([{**CONNECTED, "prefix": "10.255.0.1/32", "protocol": "local"}])) == ()


@pytest.mark.parametrize(
    ("flag", "type"),
    [("blackhole", "blackhole"), ("reject", "unreachable"), ("admin-prohibited", "prohibit")],
)
def test_a_route_to_nowhere_has_the_type_of_iproute2(flag: str, type: str) -> None:
    (route,) = parsed_routes(pretty([{**BGP, "nexthops": [{"fib": True, "unreachable": True, flag: True}]}]))
    assert (route.type, route.dev, route.gateway, route.scope) == (type, "", None, "global")


def test_a_metric_of_the_kernel_is_put_together_again() -> None:
    rib = {**BGP, "protocol": "kernel", "distance": 1, "metric": 7}
    assert [route.metric for route in parsed_routes(pretty([rib]))] == [(1 << 24) + 7]
    rib = {**BGP, "protocol": "kernel", "distance": 0, "metric": 0}
    assert [route.metric for route in parsed_routes(pretty([rib]))] == [None]


def test_an_ipv6_route_is_read() -> None:
    rib = {
        **BGP,
        "prefix": "2001:db8::/48",
        "nexthops": [{"fib": True, "ip": "fe80::1", "interfaceName": "va"}],
    }
    (route,) = parsed_routes(pretty([rib]))
    assert (route.dst, route.gateway, route.metric) == ("2001:db8::/48", "fe80::1", 20)


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"prefix": prefix}
            for prefix in ("", "x", "10.0.0.1", "10.0.0.0/33", "10.0.0.0/-1", "300.0.0.0/8")
        ),
        *({"prefix": prefix} for prefix in ("::/129", "10.0.0.0/8/8", "10.0.0.0/٣", "\x00/8", 7)),
        *({"metric": metric} for metric in (-1, 1 << 32, "1", None)),
        {"table": "main"},
        {"nexthops": [{"fib": True, "ip": "10.0.0"}]},
        {"nexthops": [{"fib": True, "source": "nowhere"}]},
        {"nexthops": {}},
    ],
    ids=repr,
)
def test_a_route_that_is_none_is_an_error(change: dict[str, Any]) -> None:
    printed = json.dumps({"prefix": [{**BGP, **change}]}).encode()
    with pytest.raises(RoutingUnavailable, match="cannot read the routes of FRR"):
        parsed_routes(printed)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def either_routes_or_unavailable(printed: bytes) -> None:
    try:
        routes = parsed_routes(printed)
    except RoutingUnavailable as error:
        assert len(str(error)) < 300 and str(error).isprintable()
    else:
        msgspec.json.encode(routes)


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_routes_or_an_error(printed: bytes) -> None:
    either_routes_or_unavailable(printed)


@given(
    st.dictionaries(st.sampled_from(sorted(BGP)), _json, max_size=3),
    st.dictionaries(st.sampled_from(["fib", "ip", "interfaceName", "source", "reject"]), _json, max_size=3),
)
@settings(deadline=None)
def test_a_route_with_any_values_is_read_or_an_error(changes: dict[str, Any], hop: dict[str, Any]) -> None:
    rib = {**BGP, "nexthops": [{**BGP["nexthops"][0], **hop}], **changes}
    either_routes_or_unavailable(json.dumps({"p": [rib]}).encode())
    either_routes_or_unavailable(json.dumps({"default": {"p": [rib]}}).encode())


@given(st.data())
@settings(deadline=None)
def test_a_reply_that_is_cut_or_damaged_is_read_or_an_error(data: st.DataObject) -> None:
    printed = bytearray(data.draw(st.sampled_from([pretty([CONNECTED, BGP], [IN_VRF]), compact(x=[BGP])])))
    start = data.draw(st.integers(0, len(printed)))
    printed[start : start + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=4))
    either_routes_or_unavailable(bytes(printed))


@pytest.mark.parametrize("printed", [b"{" * 100_000, b'{"a":' * 100_000, b"[" * 100_000, b"{\n" * 50_000])
def test_a_reply_of_brackets_is_an_error(printed: bytes) -> None:
    with pytest.raises(RoutingUnavailable):
        parsed_routes(printed)


# The summary, from a vtysh whose output is given.


def summary(printed: bytes, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(frr, "run", lambda *_, **__: Ended(0, printed, b""))
    return Frr(FrrFolders(), 1).bgp_summary()


def test_a_neighbor_with_a_host_name_of_any_bytes_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = b'{"ipv4Unicast":{"peers":{"10.0.0.1":{"hostname":"\xff\xfe"},"10.0.0.2":{}}}}'
    peers = summary(printed, monkeypatch)["ipv4Unicast"]["peers"]
    assert list(peers) == ["10.0.0.1", "10.0.0.2"]
    assert peers["10.0.0.1"]["hostname"] == "\ufffd\ufffd"


@given(st.binary(max_size=60) | _json.map(lambda value: json.dumps(value).encode()))
@settings(deadline=None)
def test_any_bytes_are_a_summary_or_an_error(printed: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        try:
            found = summary(printed, patch)
        except RoutingUnavailable as error:
            assert len(str(error)) < 300 and str(error).isprintable()
        else:
            assert isinstance(found, dict)
            msgspec.json.encode(found)
