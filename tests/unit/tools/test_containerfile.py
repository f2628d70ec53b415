"""The Containerfile, beside the source from which it builds the image."""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages

REPOSITORY = Path(__file__).parents[3]
COPIED = set(
    re.findall(
        r"(?m)^COPY --from=build /opt/gateway-api/(\S+) \1$", (REPOSITORY / "Containerfile").read_text()
    )
)


def test_the_image_has_every_package_of_the_source() -> None:
    settings = ConfigParser()
    settings.read(REPOSITORY / "setup.cfg")
    included = settings["options.packages.find"]["include"].split()
    packages = find_packages(str(REPOSITORY), include=included)
    assert {name for name in packages if "." not in name} <= COPIED


def test_the_image_is_made_of_files_that_the_source_has() -> None:
    assert [name for name in COPIED - {".venv"} if not (REPOSITORY / name).exists()] == []


def test_the_passwords_of_make_run_do_not_reach_the_image() -> None:
    assert "/.run" in (REPOSITORY / ".dockerignore").read_text().splitlines()
