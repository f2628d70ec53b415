"""The Debian packages, built once for all modules here."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.package import find_packages

_REPOSITORY = Path(__file__).parents[2]
_BUILD = _REPOSITORY / "build"


@pytest.fixture(scope="session")
def packages(testrun_uid: str) -> dict[str, Path]:
    """The packages of this run, by name: where several processes share the run, the first one builds."""
    _BUILD.mkdir(exist_ok=True)
    with (_BUILD / "tested").open("a+") as tested:
        fcntl.flock(tested, fcntl.LOCK_EX)
        tested.seek(0)
        if tested.read() != testrun_uid:
            _build()
            tested.truncate(0)
            tested.write(testrun_uid)
    return find_packages(_BUILD)


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
