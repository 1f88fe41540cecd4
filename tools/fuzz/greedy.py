"""Requests that are well formed and ask a server to keep, to write or to compute very much.

Each is small. `incoming` and `nameserver` check afterwards that what was kept has the bounds of the settings.
"""

from __future__ import annotations

import random

import msgspec

from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command, encode_command

COUNTS = (0, 1, 4, 1_000, 16_384, 16_385, 65_537, 2**31 - 1, -1, -(2**31))
SEND = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": "", "j": "0"}
TOPIC = {"defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
PULL = {"consumerGroup": "G", "topic": "T", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "6", "subVersion": "0"}
PULL |= {"commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*", "expressionType": "TAG"}


def greedy_for_broker(dice: random.Random) -> bytes:
    """A few frames for a broker."""
    name, group, count = f"T{dice.randrange(1000)}", f"G{dice.randrange(1000)}", str(dice.choice(COUNTS))
    match dice.randrange(10):
        case 0:
            fields = {**TOPIC, "topic": "BIG", "readQueueNums": count, "writeQueueNums": str(dice.choice(COUNTS))}
            return _frame(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        case 1:
            return b"".join(
                _frame(code, {"topic": "BIG", "group": "G", "consumerGroup": "G"}) for code in (202, 208, 303)
            )
        case 2:
            fields = {"topic": "BIG", "group": "G", "timestamp": "-1", "isForce": "true", "queueId": count}
            return _frame(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        case 3:
            consumers = [
                {"groupName": f"{group}x{n}", "subscriptionDataSet": []} for n in range(dice.choice((1, 5_000)))
            ]
            body = {"clientID": "c" * dice.choice((5, 100_000)), "consumerDataSet": consumers, "producerDataSet": []}
            return _frame(RequestCode.HEART_BEAT, {}, msgspec.json.encode(body))
        case 4:
            return _frame(RequestCode.SEND_MESSAGE_V2, {**SEND, "b": name, "d": count}, b"x")
        case 5:
            fields = {"offset": "0", "group": "G", "delayLevel": dice.choice(("0", "-1"))}
            return _frame(RequestCode.CONSUMER_SEND_MSG_BACK, fields) * dice.randrange(1, 60)
        case 6:
            fields = {"consumerGroup": group, "topic": dice.choice(("T", name)), "queueId": count, "commitOffset": "5"}
            return _frame(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        case 7:
            return _frame(RequestCode.PULL_MESSAGE, {**PULL, "queueId": str(dice.randrange(4))}) * dice.randrange(
                1, 200
            )
        case 8:
            return b"".join(_frame(code, {}) for code in (21, 43, 201)) * dice.randrange(1, 40)
        case _:
            body = {"groupName": group, "retryQueueNums": int(count)}
            return _frame(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, msgspec.json.encode(body))


def greedy_for_name_server(dice: random.Random) -> bytes:
    """A frame for a name server."""
    count, broker = dice.choice(COUNTS), f"b{dice.randrange(3)}"
    match dice.randrange(3):
        case 0:
            fields = {
                "namespace": f"N{dice.randrange(9)}",
                "key": str(dice.randrange(99)),
                "value": "v" * dice.choice((1, 9**5)),
            }
            return _frame(RequestCode.PUT_KV_CONFIG, fields) * dice.randrange(1, 20)
        case 1:
            topics = {name: {"readQueueNums": count, "writeQueueNums": 4} for name in ("BIG", "T")}
            body = {"topicConfigSerializeWrapper": {"topicConfigTable": topics}, "filterServerList": []}
            fields = {"brokerName": broker, "brokerAddr": "127.0.0.1:1", "clusterName": "c", "brokerId": "0"}
            return _frame(RequestCode.REGISTER_BROKER, fields, msgspec.json.encode(body))
        case _:
            queues = [{"brokerName": broker, "readQueueNums": count, "writeQueueNums": count, "perm": 6}]
            body = msgspec.json.encode({"queueDatas": queues, "brokerDatas": []})
            return _frame(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "BIG"}, body)


def _frame(code: int, fields: dict[str, str], body: bytes | None = None) -> bytes:
    return encode_command(Command(code, 1, fields=fields, body=body))
