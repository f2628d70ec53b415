"""What FRR's programs print, as seen and with any bytes: frr-reload.py, and the BGP summary of vtysh."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_core.gateways.linux.daemons import frr
from gateway_core.gateways.linux.daemons.frr import (
    BgpReader,
    FrrAbsent,
    FrrConfiguration,
    FrrDifference,
    FrrFolders,
    FrrRefused,
    FrrUnavailable,
)
from gateway_core.gateways.linux.program import CommitLimits, ProgramResult

TEXT = "frr defaults traditional\nrouter bgp 65001\n neighbor 10.0.0.2 colour red\n"

#: FRR 8.4.4.
SYNTAX = b"""\
2026-11-22 08:58:23,898 \x1b[91m  ERROR\x1b[0m: vtysh failed to process new configuration: vtysh (mark file)
b'line 3: % Unknown command:  neighbor 10.0.0.2 colour red\\n\\n'
2026-11-22 08:58:23,898  INFO: Loading Config object from vtysh show running
"""
VALUE = b"""\
line 2: Failure to communicate[13] to bgpd, line:  neighbor 10.0.0.2 colour red

2026-11-22 08:58:27,752 \x1b[91mWARNING\x1b[0m: frr-reload.py failed due to
"""
DOWN = b"Exiting: failed to connect to any daemons.\nTraceback (most recent call last):\nVtyshException\n"
EMPTY = b"2026-11-22 09:00:31,076 \x1b[91m  ERROR\x1b[0m: Filename /tmp/frr.conf is an empty file\n"


RUNNING = ProgramResult(0, b"frr version 8.4.4\n!\nend\n", b"")
SAVED, TAKEN = ProgramResult(0, b"[OK]\n", b""), ProgramResult(0, b"", b"")


def difference(ended: ProgramResult, text: str = TEXT) -> FrrDifference:
    later = iter([ended])

    def run(command: list[str], **_: object) -> ProgramResult:
        if "show running-config no-header" in command:
            return RUNNING
        return SAVED if "write memory" in command else next(later, TAKEN)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frr, "run", run)
        return FrrConfiguration(FrrFolders(), CommitLimits.of(1, 1)).apply(text)


@pytest.mark.parametrize(
    ("errors", "output", "reason"),
    [
        (SYNTAX, b"", "Unknown command"),
        (VALUE, b"% Configure the peer-group first\n", "Configure the peer-group first"),
        (VALUE, b"", "it gives no reason"),
    ],
)
def test_a_refusal_names_the_line_of_the_file(errors: bytes, output: bytes, reason: str) -> None:
    with pytest.raises(FrrRefused) as refused:
        difference(ProgramResult(1, output, errors))
    place = "line 3 of frr.conf (neighbor 10.0.0.2 colour red)"
    assert refused.value.reason == f"FRR refuses {place}: {reason}"


def test_a_failure_without_a_line_has_its_reason() -> None:
    with pytest.raises(FrrRefused, match=r"frr\.conf: Filename /tmp/frr\.conf is an empty file$"):
        difference(ProgramResult(1, b"", EMPTY))
    # It refuses nothing.
    with pytest.raises(FrrAbsent, match=r"failed to connect to any daemons$"):
        difference(ProgramResult(1, b"", DOWN))


#: FRR 8.4.4, and 10.3, which leaves each context.
OUTPUT_8 = b"""
Lines To Delete
===============
no hostname vm
router bgp 65001
 no neighbor 10.0.0.2 description core 8

Lines To Add
============
service integrated-vtysh-config
router bgp 65001
 address-family ipv4 unicast
  redistribute kernel
hostname bng1
"""
OUTPUT_10 = OUTPUT_8.replace(b"core 8\n", b"core 8\nexit\n").replace(b"kernel\n", b"kernel\n exit\nexit\n")


@pytest.mark.parametrize("output", [OUTPUT_8, OUTPUT_10])
def test_a_difference_has_commands_with_their_context_and_nothing_of_vtysh(output: bytes) -> None:
    assert difference(ProgramResult(0, output, b"")) == FrrDifference(
        removed_commands=("router bgp 65001\n no neighbor 10.0.0.2 description core 8",),
        added_commands=("router bgp 65001\n address-family ipv4 unicast\n  redistribute kernel",),
    )
    assert difference(ProgramResult(0, b"", b"")) == FrrDifference()


_printed = st.binary(max_size=80) | st.lists(
    st.sampled_from(
        [*OUTPUT_8.splitlines(True), *SYNTAX.splitlines(True), *VALUE.splitlines(True), b"line 0: % x"]
    )
).map(b"".join)


@given(st.integers(-9, 3), _printed, _printed, st.text(max_size=20))
def test_any_bytes_are_a_difference_or_an_error(status: int, output: bytes, errors: bytes, text: str) -> None:
    # The draft is written as bytes, and a text of a configuration has none of these.
    text = text.encode(errors="ignore").decode()
    try:
        difference(ProgramResult(status, output, errors), text)
    except (FrrRefused, FrrUnavailable) as error:
        assert len(str(error)) < 600 and str(error).isprintable()


def test_a_draft_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(frr, "run", lambda *_, **__: RUNNING)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(FrrUnavailable, match="cannot write its draft: No such file or directory"):
        FrrConfiguration(FrrFolders(), CommitLimits.of(1, 1)).apply(TEXT)


# The BGP summary

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def summary(printed: bytes, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(frr, "run", lambda *_, **__: ProgramResult(0, printed, b""))
    return BgpReader(FrrFolders(), 1).read_bgp_summary()


def test_a_neighbor_with_a_name_of_any_bytes_does_not_hide_others(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = b'{"ipv4Unicast":{"peers":{"10.0.0.1":{"hostname":"\xff\xfe"},"10.0.0.2":{}}}}'
    peers = summary(printed, monkeypatch)["ipv4Unicast"]["peers"]
    assert list(peers) == ["10.0.0.1", "10.0.0.2"]
    assert peers["10.0.0.1"]["hostname"] == "\ufffd\ufffd"


def test_a_reply_of_brackets_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FrrUnavailable):
        summary(b'{"a":' * 100_000, monkeypatch)


@given(st.binary(max_size=60) | _json.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_summary_or_an_error(printed: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        try:
            found = summary(printed, patch)
        except FrrUnavailable as error:
            assert len(str(error)) < 300 and str(error).isprintable()
        else:
            assert isinstance(found, dict)
            msgspec.json.encode(found)
