"""Makes a large log in a short time: messages are appended through the store, without a broker, until kill -9.

python -m bench.growth_log DIRECTORY GIB BODY_BYTES

The files are flushed and the checkpoint is saved as often as a busy broker does, and not at the end: this process kills
itself as soon as the log is long enough.
"""

from __future__ import annotations

import os
import signal
import sys

from bench.servers import DEFAULTS
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.store.log.append import Draft
from twinlog.store.message_store import MessageStore

_FLUSH_BYTES = 256 << 20
_RUN = 64
_QUEUES = 8
_HOST = ("127.0.0.1", 40_000)


def main(argv: list[str]) -> None:
    root, log_bytes, body = argv[0], int(argv[1]) << 30, os.urandom(int(argv[2]))
    os.makedirs(root, exist_ok=True)
    text = "".join(f"{key}={value}\n" for key, value in {**DEFAULTS, "storePathRootDir": root}.items())
    store = MessageStore.open(load_broker_conf(text=text, environment={}).store)
    flushed = number = 0
    while store.log_end < log_bytes - _FLUSH_BYTES // 2:
        rows = []
        for _ in range(_RUN):
            number += 1
            key = f"7F0000010001{number:020X}"
            properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02".encode()
            rows.append(("GrowthLog", number % _QUEUES, body, properties, 1_700_000_000_000, 0, 0, 0, (0, "", key)))
        stored = len(store.append_run(_HOST, rows))
        for topic, queue_id, data, properties, born, *_, found in rows[stored:]:  # a new segment, a new queue
            store.append(Draft(topic, queue_id, data, properties, _HOST, born, 0, 0, 0, found=found))
        store.dispatch_pending()
        if store.log_end - flushed > _FLUSH_BYTES:
            flushed = store.log_end
            store.flush()
            store.flush_queues()
            store.save_checkpoint()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
