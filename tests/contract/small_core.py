"""The core daemon without what a core may leave out: `python -m tests.contract.small_core`, with the
arguments of `gateway_core`. The variable `LACKS` names further methods that it does not have."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from gateway_contract.core.interface import CORE
from gateway_core.__main__ import main
from gateway_core.service import core as service
from tests.support.stack import Api, running_api, running_core

#: The names of the methods that it does not have.
OPTIONAL = frozenset(method.__name__ for method in CORE.optional)


@contextmanager
def small_gateway(api: Api, state: Path, folder: Path) -> Iterator[Api]:
    """A gateway of 100 sessions with such a core. The users are those of the stack `api`, whose folder is
    `state`; what is logged is in `state`, too."""
    socket, program = folder / "core.sock", "tests.contract.small_core"
    with ExitStack() as stack:
        stack.enter_context(running_core(socket, state / "factory.json", "--sessions", "100", module=program))
        # Beside the stack's history, it would wait until the stack's workers record no more.
        url = stack.enter_context(running_api(socket, state, GATEWAY_API_STATE=str(folder)))
        yield Api({**api.environment, "GATEWAY_URL": url})


if __name__ == "__main__":
    lacks = OPTIONAL | set(os.environ.get("LACKS", "").split())
    methods = tuple(method for method in CORE.methods if method.__name__ not in lacks)
    with patch.object(service, "CORE", replace(CORE, methods=methods, optional=frozenset())):
        sys.exit(main())
