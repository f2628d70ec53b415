"""What is installed is pinned: what runs, what tests and linters need besides, and what the bench and the
documentation have in environments of their own."""

import configparser
import re
from importlib.metadata import version
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
RUN = "requirements/run.lock"
DEVELOP = "requirements/develop.lock"
BENCH = "requirements/bench.lock"
DOCS = "requirements/docs.lock"


def locked(name: str) -> dict[str, str]:
    """The versions of the packages in a file."""
    return dict(re.findall(r"(?m)^([a-z][^=]*)==(\S+)", (REPOSITORY / name).read_text()))


def wanted(section: str, key: str) -> set[str]:
    """The names that setup.cfg asks for, as a lock has them."""
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    names = re.findall(r"(?m)^[a-z][\w-]+", setup[section][key])
    return {name.replace("_", "-") for name in names}


def test_what_runs_is_pinned_in_the_one_and_what_develops_in_the_other() -> None:
    extras = "options.extras_require"
    runs = wanted("options", "install_requires") | wanted(extras, "fast") | wanted(extras, "checkout")
    develops = wanted(extras, "develop")
    assert runs <= locked(RUN).keys()
    assert develops - runs <= locked(DEVELOP).keys()
    assert develops.isdisjoint(locked(RUN).keys() - runs)


@pytest.mark.parametrize("lock", [BENCH, DOCS])
def test_what_has_its_own_environment_is_pinned(lock: str) -> None:
    asked = (REPOSITORY / lock).with_suffix(".in").read_text()
    names = set(re.findall(r"(?m)^[a-z][\w-]+", asked))
    assert names
    assert names <= locked(lock).keys()


def test_no_package_is_pinned_in_both() -> None:
    assert locked(RUN).keys().isdisjoint(locked(DEVELOP))


@pytest.mark.parametrize("name", [RUN, DEVELOP, BENCH, DOCS])
def test_each_package_has_a_hash(name: str) -> None:
    packages = re.findall(r"(?m)^[a-z].*(?:\n .*)*", (REPOSITORY / name).read_text())
    assert packages
    assert [package for package in packages if "--hash=sha256:" not in package] == []


def test_the_tests_run_with_what_is_pinned() -> None:
    pinned = locked(RUN) | locked(DEVELOP)
    # Left out where no compiler is.
    pinned.pop("gunicorn-h1c")
    assert {name: version(name) for name in pinned} == pinned
