"""A plug-in around the store: it refuses some messages, and counts the others by topic.

A broker loads it with `messageStorePlugIn=store_plugin:factory`, if this directory is on its PYTHONPATH.
"""

import json
import tempfile
import threading
from collections import Counter
from pathlib import Path

from twinlog.base.atomic_file import replace_file
from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import BrokerRefused, Outgoing
from twinlog.client.sync import Producer
from twinlog.store.log.append import Appended, PutStatus
from twinlog.store.plugins import StoreWrapper

CARD_NUMBER = b"card="


class Refusing(StoreWrapper):
    """Stands before the store. A batch of messages comes as one `append_batch`."""

    def append(self, draft):
        if CARD_NUMBER in draft.body:
            return Appended(PutStatus.MESSAGE_ILLEGAL)
        return self.inner.append(draft)

    def append_batch(self, drafts):
        if any(CARD_NUMBER in draft.body for draft in drafts):
            return Appended(PutStatus.MESSAGE_ILLEGAL)
        return self.inner.append_batch(drafts)


class TopicCounts:
    """Follows the log, with a file that says how far: after a crash some records come again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        kept = json.loads(file.read_text()) if file.exists() else {"end": 0, "counts": {}}
        self._end, self._counts = kept["end"], Counter(kept["counts"])
        self._lock, self._writing = threading.Lock(), threading.Lock()

    def dispatch(self, batch):
        with self._lock:
            for record in batch:
                if record.physical_offset >= self._end:
                    self._counts[record.topic] += record.batch_size
                    self._end = record.physical_offset + record.size

    def flush(self):
        """Runs in a thread beside `dispatch`. What is not on disk when it returns may come again after a crash."""
        with self._writing:
            with self._lock:
                text = json.dumps({"end": self._end, "counts": self._counts})
            replace_file(self._file, [text.encode()])

    def truncate_after(self, log_end):
        """The log was cut: other records come from `log_end` on. What was counted stays counted."""
        if log_end < self._end:
            with self._lock:
                self._end = log_end
            self.flush()


def factory(store, context):
    store.add_dispatcher(TopicCounts(Path(context.store_settings.root_dir) / "topicCounts.json"))
    return Refusing(store)


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        for day in ("Monday", "Tuesday"):
            with (
                EmbeddedBroker(home, {"messageStorePlugIn": "store_plugin:factory"}) as broker,
                Producer(broker.namesrv_address, "shop") as producer,
            ):
                for body in ("tea", "coffee", "card=4111"):
                    try:
                        producer.send(Outgoing("Orders", body))
                    except BrokerRefused:
                        print(f"{day}: {body} was refused")
        print("counted", json.loads((Path(home) / "store" / "topicCounts.json").read_text())["counts"])


if __name__ == "__main__":
    main()
