"""FRR's BGP summary, from a vtysh whose output is given: with any bytes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_api.core.gateways.linux.daemons import frr
from gateway_api.core.gateways.linux.daemons.frr import Frr, FrrFolders, RoutingUnavailable
from gateway_api.core.gateways.linux.program import EndedProgram

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def summary(printed: bytes, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(frr, "run", lambda *_, **__: EndedProgram(0, printed, b""))
    return Frr(FrrFolders(), 1).bgp_summary()


def test_a_neighbor_with_a_host_name_of_any_bytes_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = b'{"ipv4Unicast":{"peers":{"10.0.0.1":{"hostname":"\xff\xfe"},"10.0.0.2":{}}}}'
    peers = summary(printed, monkeypatch)["ipv4Unicast"]["peers"]
    assert list(peers) == ["10.0.0.1", "10.0.0.2"]
    assert peers["10.0.0.1"]["hostname"] == "\ufffd\ufffd"


@pytest.mark.parametrize("printed", [b'{"a":' * 100_000, b"[" * 100_000])
def test_a_reply_of_brackets_is_an_error(printed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RoutingUnavailable):
        summary(printed, monkeypatch)


@given(st.binary(max_size=60) | _json.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_summary_or_an_error(printed: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        try:
            found = summary(printed, patch)
        except RoutingUnavailable as error:
            assert len(str(error)) < 300 and str(error).isprintable()
        else:
            assert isinstance(found, dict)
            msgspec.json.encode(found)
