"""The Python packages that are installed with the API, and the day on which they were up to date.

The metadata of the installed packages has their versions and licenses, in a Debian package as in a
checkout."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageMetadata, distributions
from pathlib import Path

#: Day on which all packages were last updated to their newest versions. `make lock` writes this line.
LOCKED_ON = "2026-11-21"

_LICENSE_CLASSIFIER = "License :: OSI Approved :: "


@dataclass(frozen=True, order=True)
class Package:
    """A Python package in the virtual environment `environment`. `name` is in the form that notices, package
    indexes and lock files use: lower case, with hyphens."""

    name: str
    version: str
    license: str
    environment: str


def get_locked_at() -> float:
    """Return the beginning of the day `LOCKED_ON`, in epoch seconds."""
    return datetime.fromisoformat(LOCKED_ON).replace(tzinfo=UTC).timestamp()


def list_environments() -> tuple[Path, ...]:
    """Return the environment of the API, which is the core's too, and the environments that the Debian
    packages gatewayctl and gateway-relay have beside it."""
    own = Path(sys.prefix)
    return own, own.with_name("gatewayctl"), own.with_name("gateway-relay")


def list_packages(environments: Iterable[Path]) -> list[Package]:
    """Return the packages of the given virtual environments, by name. An environment that does not exist has
    no packages."""
    return sorted(
        Package(
            re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower(),
            distribution.version,
            _read_license(distribution.metadata),
            str(environment),
        )
        for environment in environments
        for folder in environment.glob("lib/python3.*/site-packages")
        for distribution in distributions(path=[str(folder)])
    )


def _read_license(metadata: PackageMetadata) -> str:
    """Return the SPDX expression of PEP 639, or what older metadata has in its place."""
    for field in ("License-Expression", "License"):
        if texts := metadata.get_all(field):
            return str(texts[0]).splitlines()[0]
    classifiers = [str(each) for each in metadata.get_all("Classifier") or []]
    names = [each.removeprefix(_LICENSE_CLASSIFIER) for each in classifiers if _LICENSE_CLASSIFIER in each]
    return " AND ".join(names) or "unknown"
