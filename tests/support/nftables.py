"""nft(8), and tables of ours that are kept as in the core."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway_api.core.gateways.linux.dataplane.nftables import RulesetEvents
from gateway_api.core.gateways.linux.dataplane.own_table import OwnTable, keep
from tests.support.measuring import within
from tests.support.stack import wait_for


def nft(command: str, *options: str) -> str:
    return subprocess.run(["nft", *options, command], check=True, capture_output=True, text=True).stdout


def elements(table: str, name: str) -> int:
    """The number of elements of a set; zero if there is none."""
    found = (each["set"] for each in json.loads(nft("list sets", "-j"))["nftables"] if "set" in each)
    return sum(
        len(each.get("elem", ()))
        for each in found
        if f"{each['family']} {each['table']}" == table and each["name"] == name
    )


@contextmanager
def kept(*tables: OwnTable) -> Iterator[None]:
    """The core looks at the tables, in the network of the calling thread."""
    with RulesetEvents() as events:
        thread = threading.Thread(target=keep, args=(tables, events))
        thread.start()
        try:
            yield
        finally:
            events.close()
            thread.join()


def repaired_within_5_s(damage: str, repairs: Callable[[], int]) -> int:
    """Damages a table, and waits until there is one repair more: how many there are then."""

    def damaged_and_repaired() -> int:
        before = repairs()
        nft(damage)
        wait_for("the repair", lambda: repairs() > before)
        return before + 1

    return within(5, damaged_and_repaired)
