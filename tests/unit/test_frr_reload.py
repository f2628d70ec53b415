"""What frr-reload.py prints, as it was seen and with any bytes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_api.core.gateways.linux.daemons import frr
from gateway_api.core.gateways.linux.daemons.frr import (
    FrrConfiguration,
    FrrDifference,
    FrrFolders,
    RoutingAbsent,
    RoutingRefused,
    RoutingUnavailable,
)
from gateway_api.core.gateways.linux.program import CommitLimits, EndedProgram

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


RUNNING = EndedProgram(0, b"frr version 8.4.4\n!\nend\n", b"")


def difference(ended: EndedProgram, text: str = TEXT) -> FrrDifference:
    def run(command: list[str], **_: object) -> EndedProgram:
        return RUNNING if "show running-config no-header" in command else ended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frr, "run", run)
        return FrrConfiguration(FrrFolders(), CommitLimits.of(1, 1)).difference(text)


@pytest.mark.parametrize(
    ("errors", "output", "reason"),
    [
        (SYNTAX, b"", "Unknown command"),
        (VALUE, b"% Configure the peer-group first\n", "Configure the peer-group first"),
        (VALUE, b"", "it gives no reason"),
    ],
)
def test_a_refusal_names_the_line_of_the_file(errors: bytes, output: bytes, reason: str) -> None:
    with pytest.raises(RoutingRefused) as refused:
        difference(EndedProgram(1, output, errors))
    error = refused.value
    assert (error.line, error.number, error.reason) == ("neighbor 10.0.0.2 colour red", 3, reason)


def test_a_refusal_without_a_line_has_its_reason() -> None:
    with pytest.raises(
        RoutingRefused, match=r"^FRR refuses frr\.conf: Filename /tmp/frr\.conf is an empty file$"
    ):
        difference(EndedProgram(1, b"", EMPTY))


def test_an_frr_that_is_down_refuses_nothing() -> None:
    with pytest.raises(RoutingAbsent, match=r"failed to connect to any daemons\.$"):
        difference(EndedProgram(1, b"", DOWN))


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
    assert difference(EndedProgram(0, output, b"")) == FrrDifference(
        removed=("router bgp 65001\n no neighbor 10.0.0.2 description core 8",),
        added=("router bgp 65001\n address-family ipv4 unicast\n  redistribute kernel",),
    )


def test_no_output_is_no_difference() -> None:
    assert difference(EndedProgram(0, b"", b"")) == FrrDifference()


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
        difference(EndedProgram(status, output, errors), text)
    except (RoutingRefused, RoutingUnavailable) as error:
        assert len(str(error)) < 600 and str(error).isprintable()


def test_a_draft_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(frr, "run", lambda *_, **__: RUNNING)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(RoutingUnavailable, match="cannot write its draft: No such file or directory"):
        FrrConfiguration(FrrFolders(), CommitLimits.of(1, 1)).difference(TEXT)
