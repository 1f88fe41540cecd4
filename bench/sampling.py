"""A look at something again and again while something else runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def sampled(sample: Callable[[], object], every: float) -> Iterator[list]:
    """What `sample` returned, again and again, while the block ran."""
    samples: list = []
    over = threading.Event()

    def run() -> None:
        while not over.wait(every):
            samples.append(sample())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
