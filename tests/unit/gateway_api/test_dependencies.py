"""The list of the bundled packages, and its date."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway_api.base.dependencies import (
    LOCKED_ON,
    Package,
    get_locked_at,
    list_environments,
    list_packages,
)

LOCK = Path(__file__).parents[3] / "requirements/run.lock"
#: Packages that a checkout can lack: without a compiler, and with a newer Python.
OPTIONAL = {"gunicorn-h1c", "backports-zstd"}


def add_package(environment: Path, name: str, *fields: str) -> None:
    folder = environment / f"lib/python3.13/site-packages/{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *fields]
    (folder / "METADATA").write_text("\n".join(lines))


def test_the_list_has_every_locked_package_with_the_locked_version() -> None:
    locked = dict(re.findall(r"(?m)^([a-z0-9-]+)==([^ ]+)", LOCK.read_text()))
    installed = {package.name: package.version for package in list_packages(list_environments())}
    assert len(locked) > 30
    assert installed | locked == installed | {
        name: version for name, version in locked.items() if name in OPTIONAL - installed.keys()
    }


def test_the_packages_of_several_environments_are_listed_by_name(tmp_path: Path) -> None:
    api, command_line = tmp_path / "gateway-api", tmp_path / "gatewayctl"
    add_package(api, "zope.event", "License-Expression: ZPL-2.1")
    add_package(command_line, "Pygments", "License-Expression: BSD-2-Clause")
    assert list_packages([api, command_line, tmp_path / "nowhere"]) == [
        Package("pygments", "1.0", "BSD-2-Clause", str(command_line)),
        Package("zope-event", "1.0", "ZPL-2.1", str(api)),
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["License: MIT"], "MIT"),
        (["License: MIT License", "        and a text"], "MIT License"),
        (
            ["Classifier: License :: OSI Approved :: BSD License", "Classifier: Topic :: Internet"],
            "BSD License",
        ),
        (["License-Expression: MIT", "License: old words"], "MIT"),
        ([], "unknown"),
    ],
)
def test_a_license_comes_from_new_and_old_metadata(tmp_path: Path, fields: list[str], expected: str) -> None:
    add_package(tmp_path, "name", *fields)
    (package,) = list_packages([tmp_path])
    assert package.license == expected


def test_the_date_is_a_day_in_the_past_at_utc() -> None:
    assert datetime.fromtimestamp(get_locked_at(), UTC).isoformat() == f"{LOCKED_ON}T00:00:00+00:00"
    assert get_locked_at() < datetime.now(UTC).timestamp()
