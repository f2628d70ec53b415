"""The speed of a processor, to compare an emulated one with this machine's."""

import time


def seconds_of_a_loop() -> float:
    """Return the processor time of a fixed loop, in seconds."""
    began = time.process_time()
    sum(number * number for number in range(1_000_000))
    return time.process_time() - began
