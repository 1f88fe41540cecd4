"""Sends and consumes with the C++ client through its PyPI package, and prints what it saw as one line of JSON.

Usage: python round_trip.py NAMESRV TOPIC GROUP (the topic exists; the package `rocketmq` is on PYTHONPATH)
"""

import json
import sys
import time

from rocketmq.client import Message, Producer, PushConsumer


def message(topic: str, body: str, tags: str) -> Message:
    made = Message(topic)
    made.set_keys(f"key-{body}")
    made.set_tags(tags)
    made.set_property("shade", "dark")
    made.set_body(body)
    return made


def main(names: str, topic: str, group: str) -> None:
    received = []

    def remember(got) -> None:
        fields = {"body": got.body, "tags": got.tags, "keys": got.keys, "shade": got["shade"]}
        received.append({name: value.decode() for name, value in fields.items()})

    consumer = PushConsumer(group)
    consumer.set_instance_name("cpp-consumer")  # sharing the producer's, they race for the first route
    consumer.set_namesrv_addr(names)
    consumer.subscribe(topic, remember, expression="red || green")
    consumer.start()
    producer = Producer(f"P_{group}", timeout=30_000)  # ms; 3 s otherwise
    producer.set_namesrv_addr(names)
    producer.start()
    statuses = [
        int(producer.send_sync(message(topic, f"cpp-{number}", tags)).status)
        for number, tags in enumerate(["red", "blue", "green", "red"])
    ]
    producer.send_oneway(message(topic, "cpp-oneway", "green"))
    ordered = producer.send_orderly(message(topic, "cpp-orderly", "red"), arg=1)
    deadline = time.monotonic() + 90
    while len({got["body"] for got in received}) < 5 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.3)  # for messages that must not come
    print(json.dumps({"sent": statuses, "ordered": int(ordered.status), "received": received}), flush=True)
    producer.shutdown()
    consumer.shutdown()


main(*sys.argv[1:])
