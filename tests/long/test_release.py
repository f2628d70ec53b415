"""Two builds of a release, from one commit in two folders."""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from gateway_contract.version import VERSION

REPOSITORY = Path(__file__).parents[2]
SOURCE = f"gateway_api-{VERSION}"
SUMS = "SHA256SUMS"
CHROOT = REPOSITORY / "packaging/debian-chroot"
#: The commands of a page ask, and install FRR, which needs a machine.
APT_OPTIONS = 'APT::Get::Assume-Yes "true"; APT::Install-Recommends "false";'


def build(origin: Path, clone: Path, umask: int) -> Path:
    """Build a release in a new clone, and return the folder with its files."""
    subprocess.run(["git", "clone", "--quiet", origin, clone], umask=umask, check=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MAKE"))}
    built = subprocess.run(
        ["make", "release"],
        cwd=clone,
        env=environment,
        umask=umask,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    return clone / "build/release"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("release") / "clone"


@pytest.fixture(scope="module")
def release(clone: Path) -> Path:
    return build(REPOSITORY, clone, umask=0o022)


@pytest.fixture(scope="module")
def unpacked(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of all Debian packages of the release."""
    folder = tmp_path_factory.mktemp("unpacked")
    for package in release.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, folder / package.name], check=True)
    return folder


@pytest.mark.timeout(3600)
def test_a_second_build_in_another_folder_has_the_same_digests(
    release: Path, clone: Path, tmp_path: Path
) -> None:
    again = build(clone, tmp_path / "another/folder/clone", umask=0o077)
    assert (again / SUMS).read_text() == (release / SUMS).read_text()


def test_the_release_has_these_files_with_these_digests(release: Path) -> None:
    names = {path.name for path in release.iterdir()}
    packages = {
        f"{name}_{VERSION}+deb{debian}_amd64.deb"
        for name in ("gateway-api", "gateway-core", "gateway-relay", "gatewayctl")
        for debian in (12, 13)
    }
    assert {name.replace("arm64", "amd64") for name in names} == packages | {
        *(f"{SOURCE}-py3-none-any.whl", f"{SOURCE}.tar.gz", f"{SOURCE}.cdx.json", "gatewayctl.pyz"),
        *("RELEASE-NOTES.md", SUMS),
    }
    listed = re.findall(r"(?m)^[0-9a-f]{64}  (.+)$", (release / SUMS).read_text())
    assert {*listed, SUMS} == names
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=release, check=True)


def test_the_notes_have_the_changes_of_the_version_and_the_digests_of_the_files(release: Path) -> None:
    notes = (release / "RELEASE-NOTES.md").read_text()
    assert notes.startswith(f"# Version {VERSION} (")
    for digest, name in re.findall(r"(?m)^([0-9a-f]{64})  (.+)$", (release / SUMS).read_text()):
        assert name == "RELEASE-NOTES.md" or f"| `{name}` |" in notes
        assert name == "RELEASE-NOTES.md" or f"| `{digest}` |" in notes


def test_the_source_archive_has_the_files_of_the_commit(release: Path, clone: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=clone, capture_output=True, text=True, check=True).stdout
    with tarfile.open(release / f"{SOURCE}.tar.gz") as archive:
        files = {member.name for member in archive.getmembers() if not member.isdir()}
    assert files == {f"{SOURCE}/{name}" for name in listed.splitlines()}


@pytest.mark.parametrize(("debian", "python"), [(12, "3.11"), (13, "3.13")])
def test_the_packages_of_each_debian_have_the_modules_of_its_python(
    unpacked: Path, debian: int, python: str
) -> None:
    (api,) = unpacked.glob(f"gateway-api_*+deb{debian}_*")
    for package in ("gunicorn_h1c", "gevent", "msgspec"):
        suffix = f".cpython-{python.replace('.', '')}-*.so"
        assert list(api.glob(f"usr/lib/gateway-api/lib/python{python}/site-packages/{package}/*{suffix}"))


def test_the_packages_have_no_path_of_the_build(unpacked: Path, clone: Path) -> None:
    for path in (f"/build/{SOURCE}", str(clone)):
        found = subprocess.run(["grep", "-rlF", path, unpacked], capture_output=True, text=True, check=False)
        assert found.stdout == ""


@pytest.mark.parametrize("debian", ["12", "13"])
def test_a_bare_debian_installs_the_release_as_the_page_says(
    release: Path, debian: str, tmp_path: Path
) -> None:
    page = (REPOSITORY / "docs/how-to/install.md").read_text()
    section = page.partition("## Install a release")[2].partition("\n## ")[0]
    lines = "\n".join(re.findall(r"(?m)^    (.*)$", section))
    root = tmp_path / "root"
    subprocess.run([CHROOT, "create", root, debian], check=True)
    (root / "etc/apt/apt.conf.d/options").write_text(APT_OPTIONS)
    shutil.copytree(release, root / "root/release")

    def run(*words: str) -> str:
        done = subprocess.run(
            [CHROOT, "run", root, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    run("env", "--chdir=/root/release", "DEBIAN_FRONTEND=noninteractive", "bash", "-euc", lines)
    for program in ("gateway-api", "gateway-core", "gatewayctl"):
        assert run(program, "--version") == f"{program} {VERSION}\n"
    assert "/usr/lib/gateway-api" in run("gateway-api", "--bill-of-materials")
    assert not (root / "usr/bin/gcc").exists()
    shutil.rmtree(root)
