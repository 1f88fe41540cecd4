"""A message that becomes visible only when the local transaction commits."""

import asyncio
import os
import sqlite3

from twinlog.client import Message, Outcome, Outgoing, Producer

NAMES = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
database = sqlite3.connect(":memory:")
database.execute("create table orders (id text primary key)")


def store_order(message: Outgoing) -> Outcome:
    """The local half: COMMIT shows the message to consumers, ROLLBACK drops it."""
    with database:
        database.execute("insert into orders values (?)", [message.keys[0]])
    return Outcome.COMMIT


def check(message: Message) -> Outcome:
    """The broker asks this when it does not know how a transaction ended."""
    found = database.execute("select 1 from orders where id = ?", [message.keys[0]]).fetchone()
    return Outcome.COMMIT if found else Outcome.ROLLBACK


async def main() -> None:
    async with Producer(NAMES, group="bookkeeping", check_transaction=check) as producer:
        result = await producer.send_in_transaction(Outgoing("Books", "one book", keys="order-1"), store_order)
        print(result.outcome.name, result.sent.message_id)


if __name__ == "__main__":
    asyncio.run(main())
