"""The Debian package, built once for all modules here."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.package import repacked

_REPOSITORY = Path(__file__).parents[2]
_BUILD = _REPOSITORY / "build"


@pytest.fixture(scope="session")
def package(testrun_uid: str) -> Path:
    """Of this run: where several processes share it, the first one builds."""
    _BUILD.mkdir(exist_ok=True)
    with (_BUILD / "tested").open("a+") as tested:
        fcntl.flock(tested, fcntl.LOCK_EX)
        tested.seek(0)
        if tested.read() != testrun_uid:
            _build()
            tested.truncate(0)
            tested.write(testrun_uid)
    (path,) = _BUILD.glob("*.deb")
    return path


def _build() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MAKE"))}
    built = subprocess.run(
        ["make", "deb"],
        cwd=_REPOSITORY,
        # At the best, compression takes longer than all else.
        env={**environment, "DPKG_DEB_COMPRESSOR_LEVEL": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr


@pytest.fixture(scope="session")
def compiled(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with what its installation compiles, which takes a machine most of the time."""

    def compile_all(tree: Path) -> None:
        library = tree / "usr/lib/gateway-api/lib"
        command = ["/usr/bin/python3", "-m", "compileall", "-q", "-s", str(tree), "-p", "/", str(library)]
        subprocess.run(command, check=True)

    return repacked(package, tmp_path_factory.mktemp("compiled") / "tree", compile_all)
