"""The Python packages in the Debian packages, the bill of materials that lists them, and the wheels."""

import json
import re
import subprocess
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from gateway_contract.version import VERSION

REPOSITORY = Path(__file__).parents[2]
WHEELS = REPOSITORY / "build/wheels"
LOCK = "".join((REPOSITORY / f"requirements/{name}.lock").read_text() for name in ("run", "relay"))


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def unpacked(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of all packages."""
    folder = tmp_path_factory.mktemp("unpacked")
    for package in packages.values():
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    return folder


@pytest.fixture(scope="module")
def bill(packages: dict[str, Path]) -> Any:
    command = [REPOSITORY / "packaging/bill-of-materials", *packages.values()]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=300, check=True).stdout)


def list_components(bill: Any) -> set[tuple[str, str]]:
    """Return the names and versions in the bill of materials."""
    components = [bill["metadata"]["component"], *bill["components"]]
    return {(normalize(each["name"]), each["version"]) for each in components}


def test_the_bill_of_materials_has_each_python_package_and_no_other(bill: Any, unpacked: Path) -> None:
    files = unpacked.glob("usr/lib/*/lib/python3.*/site-packages/*.dist-info/METADATA")
    metadata = [HeaderParser().parsestr(file.read_text()) for file in files]
    assert list_components(bill) == {(normalize(each["Name"]), each["Version"]) for each in metadata}
    assert len(bill["components"]) > 25


def test_each_file_beside_the_programs_is_of_a_package_in_the_bill_of_materials(
    bill: Any, unpacked: Path
) -> None:
    names = {name for name, _ in list_components(bill)}
    files = {
        file
        for wheel in WHEELS.glob("*.whl")
        if normalize(wheel.name.partition("-")[0]) in names
        for file in ZipFile(wheel).namelist()
    }
    for library in unpacked.glob("usr/lib/*/lib/python3.*/site-packages"):
        unknown = {str(path.relative_to(library)) for path in library.rglob("*") if path.is_file()} - files
        assert unknown == set()


def test_each_component_has_a_license_a_package_url_and_the_digests_of_the_lock_file(bill: Any) -> None:
    locked = {
        normalize(name): set(re.findall("sha256:([0-9a-f]{64})", digests))
        for name, digests in re.findall(r"(?m)^([^ #=]+)==.*\n((?: .*\n)+)", LOCK)
    }
    for component in bill["components"]:
        name = normalize(component["name"])
        assert component["licenses"]
        assert normalize(component["purl"]) == normalize(f"pkg:pypi/{name}@{component['version']}")
        references = component["externalReferences"]
        digests = {digest["content"] for each in references for digest in each.get("hashes", [])}
        assert digests == locked[name]


def test_the_page_of_the_documentation_gives_a_reason_for_each_package(bill: Any) -> None:
    page = (REPOSITORY / "docs/explanation/dependencies.md").read_text()
    table = page.partition("| package | reason |")[2].partition("\n\n")[0]
    names = [name for row in re.findall(r"(?m)^\| ([a-z].*?) \|", table) for name in row.split(", ")]
    assert sorted(names) == sorted(normalize(each["name"]) for each in bill["components"])


def test_the_command_lists_what_the_bill_of_materials_has(bill: Any, unpacked: Path) -> None:
    program = "import sys; from gateway_api.cli.api import main; sys.exit(main(['--bill-of-materials']))"
    command = [unpacked / "usr/lib/gateway-api/bin/python", "-I", "-B", "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    rows = [line.split() for line in said.splitlines() if not line.startswith("#")]
    assert {(name, version) for name, version, *_ in rows} == list_components(bill)
    assert {Path(row[-1]).name for row in rows} == {"gateway-api", "gateway-relay", "gatewayctl"}


def test_the_wheel_installs_from_the_built_wheels_without_an_index(
    packages: dict[str, Path], tmp_path: Path
) -> None:
    subprocess.run(["/usr/bin/python3", "-m", "venv", tmp_path], check=True)
    pip = [tmp_path / "bin/pip", "--isolated", "--disable-pip-version-check", "install", "--no-index"]
    subprocess.run([*pip, "--quiet", "--find-links", WHEELS, f"gateway-api[relay]=={VERSION}"], check=True)
    for program in ("gateway-api", "gateway-core", "gateway-relay", "gatewayctl"):
        said = subprocess.run(
            [tmp_path / "bin" / program, "--version"], capture_output=True, text=True, check=True
        ).stdout
        assert said == f"{program} {VERSION}\n"
