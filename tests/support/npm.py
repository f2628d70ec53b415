"""Tools from npm."""

import subprocess
from pathlib import Path


def installed(folder: Path, *packages: str) -> Path:
    """Install packages, and return the folder of their programs."""
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *packages]
    subprocess.run([*command, "--prefix", str(folder)], check=True, capture_output=True)
    return folder / "node_modules" / ".bin"
