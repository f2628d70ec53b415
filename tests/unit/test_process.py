"""The process."""

import subprocess
import sys


def test_what_is_loaded_is_exempt_from_collection_and_garbage_is_not() -> None:
    code = """
import gc, weakref
from gateway_api.base.process import keep_loaded

class Node: pass

def circle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

before, kept = circle(), Node()
keep_loaded()
after = circle()
assert before() is None
assert not any(held is kept for held in gc.get_objects())
gc.collect()
assert after() is None
"""
    subprocess.run([sys.executable, "-c", code], check=True)
