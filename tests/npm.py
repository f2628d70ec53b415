"""Tools that only npm has."""

import shutil
import subprocess
from pathlib import Path

import pytest


def installed(folder: Path, *packages: str) -> Path:
    """The folder of the programs of these packages, which are installed into another one. Skips the test
    where there is no npm: Debian's is 408 packages."""
    if not shutil.which("npm"):
        pytest.skip("there is no npm")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *packages]
    subprocess.run([*command, "--prefix", str(folder)], check=True, capture_output=True)
    return folder / "node_modules" / ".bin"
