"""gatewayctl.pyz: downloaded from a gateway as the documentation shows it, and run where little is there."""

import ast
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway_contract.version import VERSION
from tests.support.one_file import build, lines_to_install
from tests.support.shell import GATEWAYCTL
from tests.support.stack import Api

USAGE = 2
VERSION_LINE = f"gatewayctl.pyz {VERSION}\n"
#: The user nobody.
NOBODY = 65534


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("source"))


class Machine:
    """A user with a home of their own, who has the file."""

    def __init__(self, archive: Path, home: Path) -> None:
        self.archive = archive
        self.temporary = home / "temporary"
        self.temporary.mkdir(parents=True)
        self.cache = home / ".cache" / "gatewayctl"
        self.environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TMPDIR": str(self.temporary)}

    def run(self, *words: str, python: Sequence[str] = (sys.executable,), **environment: str) -> str:
        """Run the file, which must succeed, and return what it prints."""
        ended = self.try_to_run(*words, python=python, **environment)
        assert ended.returncode == 0, ended
        return ended.stdout

    def try_to_run(
        self, *words: str, python: Sequence[str] = (sys.executable,), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        command = [*python, self.archive, *words]
        variables = self.environment | environment
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    @property
    def folder(self) -> Path:
        """The extracted program."""
        (folder,) = self.cache.iterdir()
        return folder


@pytest.fixture
def machine(archive: Path, tmp_path: Path) -> Machine:
    return Machine(archive, tmp_path / "home")


def test_the_lines_of_the_documentation_download_check_and_install_the_file(api: Api, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    lines = lines_to_install(api)
    ended = subprocess.run(
        ["bash", "-eu"],
        input=lines, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "gatewayctl.pyz: OK\n"
    program = home / ".local/bin/gatewayctl"
    names = api.environment
    password = tmp_path / "password"
    password.write_text(names["ADMIN_PASSWORD"])
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment |= {"GATEWAY_URL": api.url, "GATEWAY_CA": names["GATEWAY_CA"]}
    for words, said in (
        (["login", "--user", names["ADMIN_USER"], "--password-file", str(password)], "logged in"),
        (["subscribers", "list", "--limit", "2", "-o", "csv"], "id,"),
        (["users", "add", "jo", "--role", "operator", "--password-file", str(password)], "in the candidate"),
        (["config", "discard", "--yes"], "the candidate is the running configuration"),
    ):
        run = subprocess.run([program, *words], env=environment, capture_output=True, text=True, check=False)
        assert (run.returncode, said in run.stdout) == (0, True), run


def test_the_file_is_small_and_has_no_compiled_python(archive: Path) -> None:
    assert archive.stat().st_size <= 3_000_000
    names = zipfile.ZipFile(archive).namelist()
    assert [name for name in names if name.endswith(".pyc")] == []
    compiled = [name for name in names if name.endswith(".so")]
    # msgspec for each of four versions of Python, bcrypt for all of them.
    assert [sum(name.startswith(machine) for name in compiled) for machine in ("x86_64", "aarch64")] == [5, 5]


def test_two_builds_in_two_folders_are_equal(archive: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == archive.read_bytes()


def test_the_first_run_extracts_the_program_for_its_user_only(machine: Machine) -> None:
    assert machine.run("--version") == VERSION_LINE
    assert machine.folder.stat().st_mode & 0o777 == 0o700
    first = machine.folder.stat()
    assert machine.run("--version", PYTHONDONTWRITEBYTECODE="1") == VERSION_LINE
    assert (machine.folder.stat().st_ino, list(machine.temporary.iterdir())) == (first.st_ino, [])


def test_processes_that_start_together_extract_one_program(machine: Machine) -> None:
    command = [sys.executable, machine.archive, "--version"]
    started = [subprocess.Popen(command, env=machine.environment, stdout=subprocess.PIPE) for _ in range(4)]
    assert [process.communicate()[0] for process in started] == [VERSION_LINE.encode()] * 4
    assert machine.folder.is_dir()


@pytest.mark.parametrize(
    "case", ["of another user", "writable for others", "that cannot be created", "no home"]
)
def test_a_cache_that_cannot_be_trusted_or_written_is_not_used(machine: Machine, case: str) -> None:
    environment = {}
    if case == "no home":
        environment = {"HOME": "relative"}
    elif case == "that cannot be created":
        environment = {"XDG_CACHE_HOME": "/proc/nothing"}
    else:
        machine.run("--version")
        (machine.folder / "gatewayctl/__main__.py").write_text("raise SystemExit('of somebody else')\n")
        if case == "of another user":
            os.chown(machine.folder, NOBODY, NOBODY)
        else:
            machine.folder.chmod(0o770)
    assert machine.run("--version", **environment) == VERSION_LINE
    # The folder of this run is gone.
    assert list(machine.temporary.iterdir()) == []


def test_an_unsupported_python_gets_the_supported_ones_and_another_way(machine: Machine) -> None:
    run = (
        "import runpy, sys; from importlib import machinery; "
        "machinery.EXTENSION_SUFFIXES[0] = '.cpython-315-x86_64-linux-gnu.so'; "
        "del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    ended = machine.try_to_run("--version", python=(sys.executable, "-c", run))
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (USAGE, "", 1)
    assert "CPython 3.11, 3.12, 3.13 or 3.14 on Linux with glibc, x86_64 or aarch64" in ended.stderr
    assert f"python3 -m pip install gateway_api-{VERSION}-py3-none-any.whl" in ended.stderr
    assert not machine.cache.exists()


def test_a_module_that_cannot_be_loaded_is_a_message(machine: Machine) -> None:
    machine.run("--version")
    for compiled in machine.folder.glob("msgspec/*.so"):
        compiled.write_bytes(b"")
    ended = machine.try_to_run("subscribers", "list")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (USAGE, "", 1)
    assert ended.stderr.startswith(f"gatewayctl: cannot load a module from {machine.folder}: ")


def test_a_damaged_file_is_a_message(machine: Machine, tmp_path: Path) -> None:
    content = bytearray(machine.archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    machine.archive = tmp_path / "gatewayctl.pyz"
    machine.archive.write_bytes(content)
    ended = machine.try_to_run("--version")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (USAGE, "", 1)
    assert ended.stderr.startswith(f"gatewayctl: {machine.archive} is damaged, download it again: ")
    assert list(machine.temporary.iterdir()) + list(machine.cache.iterdir()) == []


def test_python_3_6_parses_the_first_module_which_names_the_version_that_is_needed(archive: Path) -> None:
    start = zipfile.ZipFile(archive).read("__main__.py").decode()
    ast.parse(start, feature_version=(3, 6))
    first = ast.parse(start).body[2]
    assert isinstance(first, ast.If)
    assert "sys.version_info < (3, 11)" in ast.unparse(first)


def test_the_help_takes_about_as_long_as_that_of_the_installed_program(machine: Machine) -> None:
    def measure(command: Sequence[str | Path]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=machine.environment, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    machine.run("--help")
    pairs = [
        (measure([sys.executable, machine.archive, "--help"]), measure([GATEWAYCTL, "--help"]))
        for _ in range(5)
    ]
    file, installed = (min(times) for times in zip(*pairs, strict=True))
    assert file < 1.5 * installed, pairs
