"""The tests themselves: the signals of the programs that they start, and the end of a test that hangs."""

import re
import signal
import subprocess
import sys
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]


def _pytest(test: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Runs a test with the settings of all tests, as a background job of a shell without job control does."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *options, test]
    return subprocess.run(
        ["sh", "-c", "trap '' INT HUP QUIT; exec \"$@\"", "sh", *command],
        cwd=_REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_program_has_default_signals() -> None:
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    (ignored,) = re.findall(r"(?m)^SigIgn:\s*(\w+)", status)
    wanted = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
    assert [number for number in wanted if int(ignored, 16) >> (number - 1) & 1] == []


def test_a_program_has_default_signals_in_a_background_job_too() -> None:
    ended = _pytest(f"{__file__}::{test_a_program_has_default_signals.__name__}")
    assert ended.returncode == 0, ended.stdout


def test_a_test_that_hangs_fails_and_says_where_it_stood(tmp_path: Path) -> None:
    hanging = tmp_path / "test_hanging.py"
    hanging.write_text("import threading\n\n\ndef test_hangs():\n    threading.Event().wait()  # here\n")
    ended = _pytest(str(hanging), "-c", "setup.cfg", "-o", "timeout=1")
    assert ended.returncode == 1
    assert "Timeout (>1.0s) from pytest-timeout" in ended.stdout
    assert "threading.Event().wait()  # here" in ended.stdout


def test_each_test_has_a_timeout() -> None:
    collected = _pytest(__file__, "--collect-only")
    (seconds,) = re.findall(r"(?m)^timeout: ([\d.]+)s$", collected.stdout)
    assert float(seconds) > 0
