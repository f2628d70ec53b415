"""Scrapes are shared: one at a time, and each for a second."""

import threading

import pytest

from gateway_api.web.metrics import CACHE_SECONDS, ScrapeCache


class Making:
    """Counts how often a text is made, at a time that is set."""

    def __init__(self) -> None:
        self.now = 100.0
        self.made = 0
        self.at_once = threading.Semaphore()
        self.go_on = threading.Event()
        self.begun = threading.Event()
        self.go_on.set()
        self.takes = 0.0
        self.scrapes = ScrapeCache(self.make, lambda: self.now)

    def make(self) -> str:
        assert self.at_once.acquire(blocking=False), "two at once"
        self.begun.set()
        assert self.go_on.wait(10)
        self.now += self.takes
        self.made += 1
        self.at_once.release()
        return f"text {self.made}"


def test_within_a_second_everybody_gets_the_same_text() -> None:
    making = Making()
    assert making.scrapes.read() == "text 1"
    making.now += CACHE_SECONDS - 0.01
    assert making.scrapes.read() == "text 1"


def test_after_a_second_a_new_one_is_made() -> None:
    making = Making()
    making.scrapes.read()
    making.now += CACHE_SECONDS
    assert making.scrapes.read() == "text 2"


def test_those_who_come_meanwhile_share_the_one_under_way_however_long_it_takes() -> None:
    making = Making()
    making.takes = 5.0
    making.go_on.clear()
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.append(making.scrapes.read())) for _ in range(16)]
    for thread in threads:
        thread.start()
    assert making.begun.wait(10)
    making.go_on.set()
    for thread in threads:
        thread.join(10)
    assert got == ["text 1"] * 16


def test_one_that_could_not_be_made_is_made_for_the_next() -> None:
    texts = iter([OSError("no file"), "text"])

    def make() -> str:
        if isinstance(text := next(texts), OSError):
            raise text
        return text

    scrapes = ScrapeCache(make, lambda: 100.0)
    with pytest.raises(OSError, match="no file"):
        scrapes.read()
    assert scrapes.read() == "text"
