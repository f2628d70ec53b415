"""The counters of a worker in their file, and in memory."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from prometheus_client.mmap_dict import MmapedDict

from gateway_api.web.counters import CounterFile


def in_file(path: Path) -> dict[str, float]:
    """What a scrape finds."""
    found = MmapedDict.read_all_values_from_file(str(path))  # type: ignore[no-untyped-call]
    return {key: value for key, value, *_ in found}


def count(file: CounterFile, numbers: range) -> dict[str, float]:
    for number in numbers:
        file.write_value(f"a counter with a name of some length {number}", float(number), 0.0)  # type: ignore[no-untyped-call]
    return {f"a counter with a name of some length {number}": float(number) for number in numbers}


def test_counters_grow_in_their_file_and_the_next_worker_continues_them(tmp_path: Path) -> None:
    path = tmp_path / "counter_0.db"
    file = CounterFile(path)
    assert file.settle() is None
    written = count(file, range(5000))
    file.close()  # type: ignore[no-untyped-call]
    assert in_file(path) == written
    with closing(CounterFile(path)) as following:
        assert following.read_value(next(reversed(written)))[0] == 4999.0  # type: ignore[no-untyped-call]


def test_workers_whose_counters_are_in_memory_are_counted_in_all_processes(tmp_path: Path) -> None:
    program = """
import os, pathlib, sys
from gateway_api.web import counters
counters.prepare(pathlib.Path(sys.argv[1]))
if os.fork() == 0:
    counters._in_memory[3] = 1
    os._exit(0)
os.wait()
sys.stdout.write(f"{counters.workers_without_room()} ")
counters.vacate(3)
sys.stdout.write(f"{counters.workers_without_room()}")
"""
    told = subprocess.check_output([sys.executable, "-c", program, str(tmp_path / "metrics")], text=True)
    assert told == "1 0"
