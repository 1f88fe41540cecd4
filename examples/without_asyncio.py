"""The same client for programs without an event loop: calls wait, listeners run in threads."""

import os
import threading

from twinlog.client import ConsumerOptions, Message, Outgoing, StartFrom
from twinlog.client.sync import Admin, Producer, PushConsumer

NAMES = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def main() -> None:
    arrived = threading.Event()

    def handle(message: Message) -> None:
        print("got", message.body.decode())
        arrived.set()

    with Admin(NAMES) as admin:
        admin.create_topic("Plain", queues=2)
    with Producer(NAMES, group="shop") as producer:
        producer.send(Outgoing("Plain", "no event loop here"))

    consumer = PushConsumer(NAMES, "plain", handle, consumer_options=ConsumerOptions(start_from=StartFrom.FIRST))
    consumer.subscribe("Plain")
    with consumer:
        arrived.wait(30)


if __name__ == "__main__":
    main()
