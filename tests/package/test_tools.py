"""What the tests call is installed where it is missing, and nothing else is."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "packaging" / "test-tools"
#: Of the script's own list, those that are looked for on the path.
TOOLS = [
    tool
    for group in re.findall(r'(?m)^ +"(\S+=.*)"$', SCRIPT.read_text())
    for tool in re.findall(r"(?<!\S)([^\s/=]+)=", group)
    if tool != "venv"
]
#: What the script and the stand-in below are made of.
BASIC = ("bash", "env", "grep", "sed", "tail", "cp")
#: Stands for apt-get: no machine of the tests may really lose its tools. Packages in `conflicts` can't be
#: installed, others bring the program that lies in a folder of their name.
APT_GET = """#!/bin/bash
echo "$@" >> "$FAKE/calls"
[[ " $* " == *" install "* ]] || exit 0
for package in "$@"; do
    if grep -qx "$package" "$FAKE/conflicts"; then
        echo "The following packages have unmet dependencies:"
        echo "E: Unable to correct problems, you have held broken packages." >&2
        exit 100
    fi
done
for package in "$@"; do
    [[ ! -d $FAKE/packages/$package ]] || cp "$FAKE/packages/$package/"* "$FAKE/bin/"
done
"""


@dataclass
class Outcome:
    """`installed` are the packages of each call to install; `found` is what the path has then."""

    status: int
    error: str
    installed: list[list[str]]
    found: set[str]


class Lacking:
    """A path with what the tests call, but for some, and an apt-get that can be told to fail."""

    def __init__(self, folder: Path, missing: dict[str, str], conflicts: tuple[str, ...] = ()) -> None:
        """`missing` gives for each tool the package that has it."""
        self._folder = folder
        self._bin = folder / "bin"
        self._bin.mkdir()
        for name in {*BASIC, *TOOLS} - {*missing}:
            # What stands for Python on the path may be a script that needs more than is here.
            program = os.path.realpath(sys.executable) if name == "python3" else shutil.which(name)
            assert program, name
            (self._bin / name).symlink_to(program)
        for tool, package in missing.items():
            self._write(f"packages/{package}/{tool}", "#!/bin/sh\n")
        self._write("bin/apt-get", APT_GET)
        self._write("conflicts", "".join(f"{name}\n" for name in conflicts))
        self._write("calls", "")

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def install(self) -> Outcome:
        ended = subprocess.run(
            [str(SCRIPT)],
            env={**os.environ, "PATH": str(self._bin), "FAKE": str(self._folder)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        calls = [line.split() for line in (self._folder / "calls").read_text().splitlines()]
        return Outcome(
            ended.returncode,
            ended.stderr,
            [
                [word for word in call if not word.startswith("-") and word != "install"]
                for call in calls
                if "install" in call
            ],
            {path.name for path in self._bin.iterdir()},
        )


def test_where_nothing_is_missing_apt_is_not_called(tmp_path: Path) -> None:
    outcome = Lacking(tmp_path, {}).install()
    assert (outcome.status, outcome.error) == (0, "")
    assert (tmp_path / "calls").read_text() == ""


def test_only_what_is_missing_is_installed(tmp_path: Path) -> None:
    outcome = Lacking(tmp_path, {"jq": "jq"}).install()
    assert outcome.status == 0
    assert outcome.installed == [["jq"]]
    assert "jq" in outcome.found


def test_all_that_is_missing_is_installed_at_once(tmp_path: Path) -> None:
    outcome = Lacking(tmp_path, {"jq": "jq", "npm": "npm", "ip": "iproute2"}).install()
    assert [sorted(names) for names in outcome.installed] == [["iproute2", "jq", "npm"]]


def test_a_package_of_another_name_is_known(tmp_path: Path) -> None:
    missing = {"systemd-nspawn": "systemd-container", "ip": "iproute2", "node": "nodejs"}
    outcome = Lacking(tmp_path, missing).install()
    assert outcome.status == 0
    assert sorted(name for names in outcome.installed for name in names) == sorted(missing.values())


def test_a_package_that_conflicts_keeps_back_none_of_another_group(tmp_path: Path) -> None:
    missing = {"npm": "npm", "jq": "jq", "strace": "strace", "debootstrap": "debootstrap"}
    outcome = Lacking(tmp_path, missing, conflicts=("npm",)).install()
    assert outcome.status == 1
    assert {"jq", "strace", "debootstrap"} <= outcome.found


def test_what_cannot_be_installed_gets_one_sentence_with_tool_package_and_reason(tmp_path: Path) -> None:
    outcome = Lacking(tmp_path, {"npm": "npm", "ip": "iproute2"}, conflicts=("npm", "iproute2")).install()
    assert outcome.status == 1
    assert outcome.error.count("\n") == 1
    assert "ip (Debian's package iproute2)" in outcome.error
    assert "npm (Debian's package npm)" in outcome.error
    assert "you have held broken packages" in outcome.error


def test_a_package_that_does_not_bring_the_tool_is_named(tmp_path: Path) -> None:
    lacking = Lacking(tmp_path, {"strace": "strace"})
    shutil.rmtree(tmp_path / "packages" / "strace")
    outcome = lacking.install()
    assert outcome.status == 1
    assert outcome.error.count("\n") == 1
    assert "strace (Debian's package strace)" in outcome.error


def test_a_machine_without_apt_gets_one_sentence(tmp_path: Path) -> None:
    lacking = Lacking(tmp_path, {"jq": "jq"})
    (tmp_path / "bin" / "apt-get").unlink()
    outcome = lacking.install()
    assert outcome.status == 1
    assert outcome.error.count("\n") == 1
    assert "jq (Debian's package jq)" in outcome.error
    assert "apt-get" in outcome.error


def test_make_stops_before_the_tests_when_a_tool_cannot_be_installed(tmp_path: Path) -> None:
    Lacking(tmp_path, {"npm": "npm"}, conflicts=("npm",))
    ended = subprocess.run(
        [
            # What is installed into .venv is not what this is about.
            *("make", "-C", str(SCRIPT.parent.parent), "-o", ".venv/.installed", "-o", ".venv/.developed"),
            *("test", "TESTS=--version"),
        ],
        env={**os.environ, "PATH": str(tmp_path / "bin"), "FAKE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode != 0
    assert "npm (Debian's package npm)" in ended.stderr
    assert "pytest" not in ended.stdout
