"""A linter of others recommends nothing for the OpenAPI document."""

import subprocess
from pathlib import Path

from tests.support import npm

FILE = Path(__file__).parents[2] / "etc" / "openapi.json"


def test_a_linter_of_others_recommends_nothing(tmp_path: Path) -> None:
    spectral = npm.installed(tmp_path, "@stoplight/spectral-cli@6.16.3") / "spectral"
    rules = tmp_path / "rules.yaml"
    rules.write_text('extends: ["spectral:oas"]\n')
    command = [spectral, "lint", "--fail-severity", "hint", "--ruleset", rules, FILE]
    linted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr
