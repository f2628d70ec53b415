"""Debian's packages, of the release of this machine: unpacked into a folder, not installed."""

import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest


def unpacked(folder: Path, packages: Callable[[], Iterable[str]]) -> Path:
    """Return the folder of the packages' files. Raises CalledProcessError: the release lacks a package."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        pytest.skip("a program is taken from Debian's packages")
    try:
        _download(folder, packages())
    except subprocess.CalledProcessError:
        subprocess.run(["apt-get", "-qq", "update"], timeout=120, check=False)
        _download(folder, packages())
    root = folder / "root"
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    return root


def _download(folder: Path, packages: Iterable[str]) -> None:
    subprocess.run(["apt-get", "-qq", "download", *packages], cwd=folder, timeout=60, check=True)
