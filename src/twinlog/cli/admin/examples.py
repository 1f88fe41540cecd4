"""An example for each admin command: what must be given, with values of a small shop."""

from __future__ import annotations

import shlex

from twinlog.cli.admin.command import AdminCommand

_VALUES = {
    "topic": "Orders",
    "topicName": "Orders",
    "clusterName": "DefaultCluster",
    "cluster": "DefaultCluster",
    "brokerAddr": "127.0.0.1:10911",
    "broker": "127.0.0.1:10911",
    "replicaAddr": "127.0.0.1:20911",
    "brokerName": "broker-a",
    "groupName": "order-readers",
    "consumerGroup": "order-readers",
    "group": "order-readers",
    "producerGroup": "order-senders",
    "srcGroup": "order-readers",
    "destGroup": "order-copies",
    "namespace": "shop",
    "key": "fileReservedTime",
    "value": "48",
    "perm": "6",
    "filename": "changes.json",
    "filePath": "/tmp/export",
    "msgId": "7F0000010ABC18B4AAC28C5A7F3C0000",
    "msgKey": "order-4711",
    "queueId": "0",
    "queue": "0",
    "index": "0",
    "offset": "42",
    "timestamp": "now",
    "ipList": "10.0.0.1,10.0.0.2",
    "method": "get",
    "mode": "POP",
    "body": "hello",
    "threshold": "3145728",
    "commitLogReadAheadMode": "0",
    "username": "ann",
    "password": "her-secret",
    "subject": "User:ann",
    "resources": "Topic:Orders",
    "resource": "Topic:Orders",
    "actions": "Pub,Sub",
    "decision": "Allow",
}
_MORE: dict[str, str] = {
    "clusterList": "-i 2",
    "updateTopic": "-r 8 -w 8",
    "resendDLQ": "--dryRun",
    "consumerProgress": "-g order-readers",
    "printMsg": "-b now -d true",
    "createUser": "-t Normal",
    "getBrokerConfig": "-k flush",
    "topicRoute": "--json",
}


def examples_of(command: AdminCommand) -> list[str]:
    """The command with all that it needs; of options that exclude each other, the last one."""
    words, either = ["twinlog", "admin", command.name], [one for one in command.options if one.only_one]
    for option in command.options:
        if option.required or (either and option is either[-1]):
            words += [f"-{option.short}" if option.short else f"--{option.long}", sample(option.long)]
    more = _MORE.get(command.name, "")
    return [" ".join([*map(shlex.quote, words), *more.split()])]


def sample(long: str) -> str:
    return _VALUES.get(long, "TODO")
