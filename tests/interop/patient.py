"""Twinlog's own clients for tests: they wait longer than users would, since on a busy machine a Java broker may think
for seconds. What a test measures must not depend on it: nothing here is slower unless an answer is."""

from __future__ import annotations

from functools import partial

from twinlog import client
from twinlog.client import ClientOptions, ProducerOptions, sync

ANSWER_MS = 30_000
OPTIONS = ClientOptions(connect_timeout_ms=ANSWER_MS, request_timeout_ms=ANSWER_MS)
SENDS = ProducerOptions(send_timeout_ms=ANSWER_MS)

# For coroutines.
Producer = partial(client.Producer, options=OPTIONS, producer_options=SENDS)
PullConsumer = partial(client.PullConsumer, options=OPTIONS)
PushConsumer = partial(client.PushConsumer, options=OPTIONS)
Admin = partial(client.Admin, options=OPTIONS, timeout_ms=ANSWER_MS)

# For plain code.
WaitingProducer = partial(sync.Producer, options=OPTIONS, producer_options=SENDS)
WaitingPullConsumer = partial(sync.PullConsumer, options=OPTIONS)
WaitingAdmin = partial(sync.Admin, options=OPTIONS, timeout_ms=ANSWER_MS)
