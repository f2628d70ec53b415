"""The files in which workers count."""

import json
import subprocess
import sys
from pathlib import Path

from prometheus_client.mmap_dict import MmapedDict

from gateway_api.web import counters

OPENAPI = Path(__file__).parents[3] / "etc" / "openapi.json"
BEGIN = """
import os, pathlib, sys
from gateway_api.web import counters
counters.prepare(pathlib.Path(sys.argv[1]))
"""


def run(program: str, *arguments: object) -> str:
    """What a process like a worker tells: prometheus_client chooses the files when it is imported."""
    command = [sys.executable, "-c", BEGIN + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def values(folder: Path, kind: str) -> list[float]:
    """What a scrape finds."""
    (file,) = folder.glob(f"{kind}_*.db")
    read = MmapedDict.read_all_values_from_file(str(file))  # type: ignore[no-untyped-call]
    return [value for _, value, *_ in read]


def test_the_files_have_room_for_all_requests_that_the_document_allows(tmp_path: Path) -> None:
    paths = json.loads(OPENAPI.read_text())["paths"]
    asked = [
        (method.upper(), path, int(status))
        for path, operations in paths.items()
        for method, operation in operations.items()
        for status in operation["responses"]
    ]
    asked += [("HEAD", path, status) for method, path, status in asked if method == "GET"]
    assert len(asked) > 600
    run(
        """
import json
counters.prepare_worker(None)
from flask import Flask, request
from prometheus_flask_exporter import PrometheusMetrics
from gateway_api.web import metrics

def route(request):
    return request.path

app = Flask("all")
exporter = PrometheusMetrics.for_app_factory(path=None, export_defaults=False)
exporter.export_defaults(metrics.BUCKET_SECONDS, route, prefix="gateway_api", app=app)
app.before_request(lambda: ("", int(request.headers["status"])))
for method, path, status in json.loads(sys.argv[2]):
    app.test_client().open(path, method=method, headers={"status": str(status)})
""",
        tmp_path,
        json.dumps(asked),
    )
    assert len(values(tmp_path, "histogram")) == 10 * len(asked)
    sizes = {file.name.rpartition("_")[0]: file.stat().st_size for file in tmp_path.iterdir()}
    assert sizes == counters.FILE_BYTES


def test_a_worker_continues_the_counters_of_one_that_has_ended(tmp_path: Path) -> None:
    count = """
ended = counters.find_ended_worker({1})
counters.prepare_worker(ended)
from prometheus_client import Counter
Counter("requests", "Requests").inc()
print(ended, os.getpid())
"""
    former = None
    for number in (1, 2, 3):
        ended, own = run(count, tmp_path).split()
        assert ended == str(former)
        assert values(tmp_path, "counter") == [number]
        former = own
    assert len(list(tmp_path.iterdir())) == len(counters.FILE_BYTES)


def test_a_worker_without_room_may_not_count_and_all_processes_know_it_until_it_ends(tmp_path: Path) -> None:
    told = run(
        """
import resource
read, write = os.pipe()
worker = os.fork()
if not worker:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    counters.prepare_worker(None)
    os.write(write, str(counters.has_space()).encode())
    os._exit(0)
os.waitpid(worker, 0)
print(os.read(read, 9).decode(), counters.has_space(), counters.count_workers_without_space())
counters.forget_worker(worker)
print(counters.count_workers_without_space())
""",
        tmp_path,
    )
    assert told.split() == ["False", "True", "1", "0"]
    assert list(tmp_path.iterdir()) == []
