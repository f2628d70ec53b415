"""The core daemon without what a core may leave out: `python -m tests.contract.small_core`, with the
arguments of `gateway_core`. The variable `LACKS` names further methods that it does not have."""

import os
import sys
from dataclasses import replace
from unittest.mock import patch

from gateway_contract.core.interface import CORE
from gateway_core.__main__ import main
from gateway_core.service import core as service

if __name__ == "__main__":
    lacks = {method.__name__ for method in CORE.optional} | set(os.environ.get("LACKS", "").split())
    methods = tuple(method for method in CORE.methods if method.__name__ not in lacks)
    with patch.object(service, "CORE", replace(CORE, methods=methods, optional=frozenset())):
        sys.exit(main())
