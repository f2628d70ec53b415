"""The process."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.stack import wait_for


def test_what_is_loaded_is_exempt_from_collection_and_what_comes_later_is_not() -> None:
    code = """
import gc, weakref
from gateway_contract.base.process import keep_loaded

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


def test_a_process_that_was_stopped_and_continues_has_no_signal() -> None:
    code = """
import signal, sys
from gateway_contract.base.process import has_signal

ends = {signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, ends)
print("ready", flush=True)
sys.exit(has_signal(ends, 1))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        state = Path(f"/proc/{process.pid}/stat")
        wait_for("its wait", lambda: state.read_text().split()[2] == "S")
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 0
