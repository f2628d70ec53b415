"""Tools that only npm has."""

import subprocess
from pathlib import Path


def installed(folder: Path, *packages: str) -> Path:
    """The folder of the programs of these packages, which are installed into another one."""
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *packages]
    subprocess.run([*command, "--prefix", str(folder)], check=True, capture_output=True)
    return folder / "node_modules" / ".bin"
