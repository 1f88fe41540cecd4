"""Hides the lines that Java and Spark always print when they start; all other lines are printed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

_NOISE = (
    b"WARNING: Using incubator modules",
    b"Using Spark's default log4j profile",
    b"Setting default log level",
    b"Setting Spark log level",
    b"To adjust logging level",
    b"WARN NativeCodeLoader",
)
_STDERR = 2


@contextlib.contextmanager
def without_start_noise() -> Iterator[None]:
    """A process started in this block writes its standard error through a filter until it ends."""
    kept = os.dup(_STDERR)
    reading, writing = os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)
    threading.Thread(target=_pass_on, args=(reading, kept), daemon=True, name="start-noise").start()
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)


def _pass_on(reading: int, kept: int) -> None:
    with open(reading, "rb") as lines:
        for line in lines:
            if line.strip() and not any(noise in line for noise in _NOISE):
                with contextlib.suppress(OSError):
                    os.write(kept, line)
    os.close(kept)
