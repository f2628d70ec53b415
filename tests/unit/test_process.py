"""The process."""

import subprocess
import sys


def test_what_is_loaded_is_exempt_from_collection_and_what_comes_later_is_not() -> None:
    code = """
import gc, weakref
from gateway_api.base.process import keep_loaded

class Node: pass

def circle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

kept = Node()
keep_loaded()
later = circle()
assert not any(held is kept for held in gc.get_objects())
gc.collect()
assert later() is None
"""
    subprocess.run([sys.executable, "-c", code], check=True)
