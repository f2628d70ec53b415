"""The README tells the truth: every line works when pasted, and every endpoint has one."""

import os
import re
import subprocess
from configparser import ConfigParser
from pathlib import Path

from tests.support.routes import ROUTES
from tests.support.stack import running_stack

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_every_endpoint_has_a_curl_line() -> None:
    text = "".join(BLOCKS)
    for route in (route for route in ROUTES if not route.part_of_a_page):
        relative = route.path.replace("{id}", "$SESSION").replace("{revision}", "1")
        relative = relative.replace("{webhook}", "$WEBHOOK").replace("{job}", "$JOB")
        path = relative if relative == "/metrics" else f"/api/v1{relative}"
        assert re.search(re.escape("$GATEWAY_URL" + path) + r'["?]', text), route
        if route.method in ("PUT", "DELETE"):
            assert f"-X {route.method} " in text


def test_every_line_works_when_pasted(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=2000, arrivals=5):
        lines = "".join(BLOCKS).replace(". .run/environment", f". {tmp_path}/environment")
        # As pasted, but that an error status fails the test.
        script = 'curl() { command curl --silent --show-error --fail-with-body "$@"; echo; }\n' + lines
        ended = subprocess.run(
            ["bash", "-eu", "-o", "pipefail"],
            input=script,
            cwd=Path(__file__).parents[2],
            # The contexts of gatewayctl.
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr
    # The metrics are no JSON.
    assert ended.stdout.count('{"status":"ok"') == len(re.findall(r"^curl --cacert", lines, re.M)) - 1
    assert "event: session_up" in ended.stdout
    assert "svc_active_sessions_total" in ended.stdout


def test_every_dependency_has_a_line_saying_why() -> None:
    setup = ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    extras = "".join(setup["options.extras_require"].values())
    declared = re.findall(r"(?m)^[a-z][\w-]+", setup["options"]["install_requires"] + extras)
    assert len(declared) > 10
    for name in declared:
        assert re.search(rf"^\| [^|]*\b{name}\b[^|]* \| .{{8,}} \|$", README, re.MULTILINE), name
