"""nft(8), and tables of ours that are kept as in the core."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from gateway_core.gateways.linux.dataplane import nftables
from gateway_core.gateways.linux.dataplane.nftables import OwnTable
from gateway_core.gateways.linux.kernel.watcher import RulesetEvents


def nft(command: str, *options: str) -> str:
    return subprocess.run(["nft", *options, command], check=True, capture_output=True, text=True).stdout


def elements(table: str, name: str) -> int:
    """Return the number of elements of a set; zero if there is no such set."""
    found = (each["set"] for each in json.loads(nft("list sets", "-j"))["nftables"] if "set" in each)
    return sum(
        len(each.get("elem", ()))
        for each in found
        if f"{each['family']} {each['table']}" == table and each["name"] == name
    )


@contextmanager
def kept(*tables: OwnTable) -> Iterator[None]:
    """Check the tables when rules change, as the core does, in the network of the calling thread."""
    with RulesetEvents() as events, patch.object(nftables, "_CHECK_INTERVAL_SECONDS", 600.0):
        thread = threading.Thread(target=nftables.keep_tables, args=(tables, events))
        thread.start()
        try:
            yield
        finally:
            events.close()
            thread.join()
