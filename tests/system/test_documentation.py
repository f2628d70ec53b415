"""Every line of the README and the documentation works when pasted, in the order of the index and in one
shell, and prints what is shown."""

import os
import re
import subprocess
from pathlib import Path

from tests.contract.test_token_profile import TOKEN, running_profile
from tests.support.manual import DOCS, ROOT, blocks, script, wrong
from tests.support.stack import free_port, running_stack

BLOCKS = blocks("sh")


def test_every_line_works_when_pasted_and_prints_what_is_shown(tmp_path: Path) -> None:
    # So many that a session of the pages is hardly one of those that end by themselves.
    with running_stack(tmp_path, sessions=20_000, arrivals=1) as (api, _):
        # As pasted, but that an error status fails the test, and with another port for receivers.
        before = 'curl() { command curl --silent --show-error --fail-with-body "$@"; echo; }\n'
        before += "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
        lines = script(BLOCKS).replace("9000", str(free_port()))
        ended = subprocess.run(
            ["bash", "-eu", "-o", "pipefail"],
            input=before + lines.replace(". .run/environment", f". {tmp_path}/environment"),
            cwd=ROOT,
            # The contexts of gatewayctl.
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    # A reader keeps the backup.
    (ROOT / "gateway-2026-11-23.json").unlink()
    assert wrong(BLOCKS, ended.stdout.replace(api.url.rpartition("/")[2], "localhost:8443")) == []
    # The metrics are no JSON.
    curls = len(re.findall(r"^ *curl --cacert", lines, re.MULTILINE))
    assert ended.stdout.count('{"status":"ok"') == curls - len(
        re.findall(r"^ *curl.*/metrics", lines, re.MULTILINE)
    )
    assert "event: session_" in ended.stdout
    assert "svc_active_sessions_total" in ended.stdout


def test_every_line_of_the_alternative_profile_works_when_pasted(tmp_path: Path) -> None:
    page = (DOCS / "reference/token-profile.md").read_text()
    lines = "".join(re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    with running_profile(tmp_path) as (profile, _):
        script = 'curl() { command curl --silent --show-error --fail-with-body "$@"; echo; }\n' + lines
        ended = subprocess.run(
            ["bash", "-eu", "-o", "pipefail"],
            input=script.replace("http://127.0.0.1:8080/api/v1", profile.url),
            env={**os.environ, "API_TOKEN": TOKEN},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr
    assert '"committed":true' in ended.stdout
    for path in ("/subscribers", "/subscribers/$SESSION", "/vlans", "/config", "/system/status"):
        assert re.search(rf"(?m)^curl.*{re.escape('$API' + path)}(?=[\"?]|$)", lines), path
    assert {"PUT", "DELETE"} <= set(re.findall(r"-X (\w+)", lines))
