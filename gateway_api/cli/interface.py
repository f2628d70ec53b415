"""`python -m gateway_api.cli.interface FOLDER` writes the interface files of the core and the hub."""

import sys
from pathlib import Path

from gateway_api.wire.core.interface import CORE
from gateway_api.wire.hub import HUB
from gateway_api.wire.interface import description

if __name__ == "__main__":
    for contract in (CORE, HUB):
        (Path(sys.argv[1]) / f"{contract.name}.varlink").write_text(description(contract))
