"""gatewayctl.pyz, built from this source, and the lines of the documentation that download it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.manual import DOCS, ROOT
from tests.support.stack import Api


def build(folder: Path) -> Path:
    """Build the file in a copy of the source, because other tests build the package in this one. The wheels
    are those that `make docs` has downloaded."""
    for name in (
        "gatewayctl",
        "gateway_client",
        "gateway_contract",
        "packaging",
        "requirements",
        "build/pyz-wheels",
    ):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    subprocess.run([sys.executable, folder / "packaging" / "pyz"], check=True)
    return folder / "build" / "gatewayctl.pyz"


def lines_to_install(api: Api) -> str:
    """Return the lines for another machine, which download, check and install the file, with the URL and the
    certificate of a gateway."""
    page = (DOCS / "how-to/first-login.md").read_text().partition("\n## From another machine\n")[2]
    lines = re.findall(r"(?m)^    ((?:curl|sha256sum|install) .*\n)", page)
    assert len(lines) == 3
    ca = api.environment["GATEWAY_CA"]
    return "".join(lines).replace("https://bng1:8443", api.url).replace("--cacert bng1.pem", f"--cacert {ca}")
