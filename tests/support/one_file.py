"""gatewayctl.pyz, built from this source, and the lines of the documentation that download it."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.manual import DOCS, ROOT
from tests.support.stack import Api

ARCHIVE = ROOT / "build" / "gatewayctl.pyz"


def build(source: Path = ROOT) -> Path:
    subprocess.run([sys.executable, source / "packaging" / "pyz"], check=True)
    return source / "build" / "gatewayctl.pyz"


def lines_to_install(api: Api) -> str:
    """Return the lines for another machine, which download, check and install the file, with the URL and the
    certificate of a gateway."""
    page = (DOCS / "how-to/first-login.md").read_text().partition("\n## From another machine\n")[2]
    lines = re.findall(r"(?m)^    ((?:curl|sha256sum|install) .*\n)", page)
    assert len(lines) == 3
    ca = api.environment["GATEWAY_CA"]
    return "".join(lines).replace("https://bng1:8443", api.url).replace("--cacert bng1.pem", f"--cacert {ca}")
