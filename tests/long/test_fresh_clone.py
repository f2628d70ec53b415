"""`make run` in a fresh clone, on a machine with little else."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.stack import free_port, stop, wait_for

REPOSITORY = Path(__file__).parents[2]
TOOLS = (
    *("bash", "sh", "make", "openssl", "git", "awk", "cat", "rm", "mkdir", "touch", "cp", "mv", "ln", "sed"),
    *("cut", "env", "uname"),
)


def test_a_fresh_clone_runs_with_nothing_but_python_make_openssl_and_git(tmp_path: Path) -> None:
    clone, tools, state = (tmp_path / name for name in ("clone", "bin", "state"))
    tools.mkdir()
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
    # Debian's own Python if there is one, and no compiler in sight.
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    (tools / "python3").symlink_to(python)
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, tool
        (tools / tool).symlink_to(found)
    kept = {name: held for name, held in os.environ.items() if not re.match("VIRTUAL_ENV|PYTHON|PYENV", name)}
    environment = {**kept, "PATH": str(tools), "PORT": str(free_port()), "STATE": str(state)}
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", "run"], cwd=clone, env=environment, stdout=output, stderr=subprocess.STDOUT
        )

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        return (state / "environment").exists()

    try:
        wait_for("make run in a fresh clone", ready, 300)
        assert "No C compiler" in log.read_text()
        packages = {path.name for path in (clone / ".venv" / "lib").glob("python3*/site-packages/*")}
        assert {"flask", "varlink"} <= packages
        assert packages.isdisjoint({"pytest", "mypy", "playwright", "hypothesis", "schemathesis"})
    finally:
        stop(process)
