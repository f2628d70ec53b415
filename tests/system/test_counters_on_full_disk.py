"""The counters of a worker on a disk that becomes full while they grow."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_api.web.counters import CounterFile
from tests.unit.test_counters import count, in_file

#: A disk on which a file of 64 KiB has room, and no larger one.
SMALL = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run([*SMALL, str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_counters_that_outgrow_a_full_disk_go_on_in_memory_until_there_is_room(disk: Path) -> None:
    path = disk / "counter_0.db"
    file = CounterFile(path)
    assert file.settle() is None
    written = count(file, range(5000))
    # By itself prometheus_client would write beyond the end of the disk here, and the kernel would kill it.
    assert file.settle() is not None
    held = in_file(path)
    assert 0 < len(held) < 5000
    assert held.items() <= written.items()
    assert not list(disk.glob("*.new"))
    subprocess.run([*SMALL[:4], "remount,size=4m", str(disk)], check=True)
    assert file.settle() is None
    assert in_file(path) == written
    assert count(file, range(6000)) == in_file(path)
    file.close()  # type: ignore[no-untyped-call]
