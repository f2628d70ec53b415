"""The machine of the tests on Debian's kernel: whose fault a failure is. Shells stand in for the emulator."""

from pathlib import Path

import pytest

from tests.support import qemu
from tests.support.kernel import MachineCrashed, run_in_machine

_WELL = "echo 0 > status; echo done > output"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that it shares."""
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("EMULATOR", "1")
    return shared


def emulate(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(qemu, "machine", lambda folder: ["sh", "-c", f"cd {folder} && {script}"])


def test_an_emulator_that_crashes_gets_another_try(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = "echo half > output; touch ../crashed; kill -SEGV $$"
    emulate(monkeypatch, f"if [ -e ../crashed ]; then [ ! -e output ] && {_WELL}; else {crash}; fi")
    with pytest.warns(UserWarning, match="the emulator sh crashed"):
        assert run_in_machine("", machine) == "done\n"


def test_an_emulator_that_crashes_twice_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, "echo x >> ../tries; kill -SEGV $$")
    with (
        pytest.warns(UserWarning, match="again"),
        pytest.raises(MachineCrashed, match=r"crashed \(SIGSEGV\), which is no fault of the gateway"),
    ):
        run_in_machine("", machine)
    assert (machine.parent / "tries").read_text() == "x\nx\n"


@pytest.mark.parametrize(
    ("line", "crash"),
    [
        (
            "[   10.1] openssl[139]: segfault at 10 ip 00007f sp 00007f error 4 in libc.so",
            "openssl (segfault)",
        ),
        ("[   10.1] traps: openssl[139] trap invalid opcode ip:7f sp:7f", "openssl (trap invalid opcode)"),
    ],
)
def test_a_failure_names_the_programs_that_crashed(
    machine: Path, monkeypatch: pytest.MonkeyPatch, line: str, crash: str
) -> None:
    (machine / "log").write_text(f"{line}\n")
    emulate(monkeypatch, "cp log kernel.log; echo 1 > status")
    with pytest.raises(AssertionError) as failure:
        run_in_machine("", machine)
    assert f"In the machine, programs crashed: {crash}." in str(failure.value)


def test_a_machine_that_ends_early_is_told_from_a_crash(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch, "echo panic")
    with pytest.raises(AssertionError, match=r"the machine ended before the script did: (?s:.*)panic"):
        run_in_machine("", machine)


def test_a_slow_machine_has_more_time(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, f"echo 60 > slowness; sleep 4; {_WELL}")
    assert run_in_machine("", machine, timeout=2) == "done\n"


def test_a_machine_that_hangs_is_ended(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, "echo 3 > slowness; sleep 600")
    with pytest.raises(TimeoutError, match="ran too long"):
        run_in_machine("", machine, timeout=0.1)
