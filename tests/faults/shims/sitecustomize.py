"""Loaded by a Python process whose PYTHONPATH has this folder: gives it a wrong clock, or a sudden end.

TWINLOG_TEST_CLOCK names a file of one number, the seconds by which this process's wall clock is wrong. It is read again
and again, so that a test can set the clock of a running broker. Monotonic clocks stay right, as on a real machine.
TWINLOG_TEST_KILL_AFTER=n ends the process with kill -9 right after its n-th call that flushes, renames or removes.
"""

import os
import time

if path := os.environ.get("TWINLOG_TEST_CLOCK"):
    true_time, true_time_ns, ticks = time.time, time.time_ns, time.monotonic
    state = [0.0, -1.0]  # wrong by, last read at

    def wrong_by() -> float:
        if ticks() - state[1] > 0.05:
            with open(path) as file:
                state[0], state[1] = float(file.read() or 0), ticks()
        return state[0]

    time.time = lambda: true_time() + wrong_by()
    time.time_ns = lambda: true_time_ns() + int(wrong_by() * 1e9)

if steps := int(os.environ.get("TWINLOG_TEST_KILL_AFTER", "0")):
    left = [steps]

    def then_die(call):
        def counted(*args, **named):
            result = call(*args, **named)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), 9)
            return result

        return counted

    for name in ("fdatasync", "fsync", "unlink", "remove", "ftruncate", "truncate", "rename", "replace", "link"):
        setattr(os, name, then_die(getattr(os, name)))
