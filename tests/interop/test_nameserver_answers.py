"""The same questions to the real name server and to ours, in the same order: the answers are compared one by one.

Only the newest Java is compared. 4.9.7 takes an increment before a full registration, keeps a topic away when only the
version of its broker stayed the same, and does not answer unknown requests; the rules of 5.x are safer.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.twinlog_servers import Twinlog

from twinlog.net.connection import Connection, ConnectionOptions
from twinlog.net.pool import connect
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError
from twinlog.wire.java_json.fastjson import loads

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

VECTORS = Path(__file__).parent.parent / "vectors"
MASTER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:1",
    "clusterName": "C",
    "haServerAddr": "127.0.0.1:2",
    "brokerId": "0",
    "enableActingMaster": "false",
}
REPLICA = {**MASTER, "brokerId": "1", "brokerAddr": "127.0.0.1:3", "haServerAddr": "127.0.0.1:4"}
OLD = {key: value for key, value in MASTER.items() if key != "enableActingMaster"}
OTHER = {**MASTER, "brokerName": "broker-b", "brokerAddr": "127.0.0.1:5", "clusterName": "D", "__ZONE_NAME": "z1"}
ACTING = {**REPLICA, "brokerName": "act", "brokerAddr": "127.0.0.1:6", "enableActingMaster": "true"}
ITEM = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}


def body(*names: str, counter: int = 1, state: int = 0, **more: Any) -> bytes:
    topic = {"perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": 0, **more}
    table = {name: {"topicName": name, **topic} for name in names}
    version = {"counter": counter, "stateVersion": state, "timestamp": 5}
    wrapper = {"dataVersion": version, "mappingDataVersion": version, "topicConfigTable": table}
    wrapper |= {"topicQueueMappingDetailMap": {}, "topicQueueMappingInfoMap": {}}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


FULL = body("T", "U", "TBW102")
COMPRESSED = bytes.fromhex((VECTORS / "class-register-body-compressed.hex").read_text().replace("\n", ""))
UNIT = body("unit", "sub", counter=9, topicSysFlag=3)
SHOW = [
    ("clusters", 106, None, None),
    ("topics", 206, None, None),
    ("T", 105, {"topic": "T"}, None),
    ("U", 105, {"topic": "U"}, None),
    ("members", 901, {"clusterName": "C", "brokerName": "broker-a"}, None),
]
# name, code, fields, body
SCRIPT: list[tuple[str, int, dict[str, str] | None, bytes | None]] = [
    *SHOW,
    ("route without a topic", 105, None, None),
    ("increment first", 103, MASTER, body("T")),
    ("bad checksum", 103, {**MASTER, "bodyCrc32": "7"}, FULL),
    ("checksum", 103, {**MASTER, "bodyCrc32": str(zlib.crc32(FULL) & 0x7FFFFFFF)}, FULL),
    *SHOW,
    ("version", 322, MASTER, b'{"counter":1,"stateVersion":0,"timestamp":5}'),
    ("other version", 322, MASTER, b'{"counter":2,"stateVersion":0,"timestamp":5}'),
    ("version of nobody", 322, OTHER, b"{}"),
    ("heartbeat", 904, MASTER, None),
    ("heartbeat of nobody", 904, OTHER, None),
    ("replica", 103, REPLICA, FULL),
    ("replica with other topics", 103, REPLICA, body("X", "Y", counter=4)),
    *SHOW,
    ("same version, other content", 103, MASTER, body("T", "U", "TBW102", perm=4)),
    *SHOW,
    ("increment", 103, MASTER, body("N", counter=2)),
    ("route of the new topic", 105, {"topic": "N"}, None),
    ("other cluster", 103, OTHER, body("T", "V", counter=3)),
    *SHOW,
    ("zone", 105, {"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": "Z1"}, None),
    ("no zone", 105, {"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": "nowhere"}, None),
    ("cluster topics", 224, {"cluster": "D"}, None),
    ("no cluster topics", 224, {"cluster": "none"}, None),
    ("system topics", 304, None, None),
    ("wipe", 205, {"brokerName": "broker-a"}, None),
    *SHOW,
    ("registered after the wipe", 103, MASTER, body("T", "U", "TBW102", counter=2)),
    *SHOW,
    ("add", 327, {"brokerName": "broker-a"}, None),
    ("add to nobody", 327, {"brokerName": "nobody"}, None),
    *SHOW,
    ("delete in a cluster", 216, {"topic": "T", "clusterName": "D"}, None),
    ("delete", 216, {"topic": "U"}, None),
    ("delete nothing", 216, {"topic": "nothing"}, None),
    *SHOW,
    ("comes back", 103, MASTER, body("T", "U", "TBW102", counter=2)),
    *SHOW,
    ("topic of a known broker", 217, {"topic": "W"}, b'{"queueDatas":[{"brokerName":"broker-a","perm":6}]}'),
    ("topic of nobody", 217, {"topic": "Z"}, b'{"queueDatas":[{"brokerName":"nobody","perm":6}]}'),
    ("route of W", 105, {"topic": "W"}, None),
    ("route of Z", 105, {"topic": "Z"}, None),
    ("compressed", 103, {**MASTER, "compressed": "true"}, COMPRESSED),
    ("route of TopicTest", 105, {"topic": "TopicTest"}, None),
    ("units", 103, MASTER, UNIT),
    ("unit topics", 311, None, None),
    ("unit subscriptions", 312, None, None),
    ("unit subscriptions only", 313, None, None),
    ("put", 100, ITEM, None),
    ("put without a key", 100, {"namespace": "n", "value": "v"}, None),
    ("get", 101, ITEM, None),
    ("list", 219, ITEM, None),
    ("order topics to a broker", 103, MASTER, UNIT),
    ("delete a key", 102, ITEM, None),
    ("get nothing", 101, ITEM, None),
    ("list nothing", 219, ITEM, None),
    ("list an unknown namespace", 219, {"namespace": "none"}, None),
    ("empty order topics to a broker", 103, MASTER, UNIT),
    ("black list", 318, None, b"configStorePath=/x"),
    ("update", 318, None, b"orderMessageEnable=true\nnoSuchKey=1"),
    ("put again", 100, ITEM, None),
    ("order topic in the route", 105, {"topic": "T"}, None),
    ("newer state", 103, MASTER, body("T", "U", counter=2, state=5)),
    ("older state takes the id", 103, {**MASTER, "brokerAddr": "127.0.0.1:9"}, body("T", "U", counter=3, state=4)),
    *SHOW,
    ("newest state takes the id", 103, {**MASTER, "brokerAddr": "127.0.0.1:9"}, body("T", "U", counter=3, state=6)),
    *SHOW,
    ("role change", 103, {**REPLICA, "brokerId": "0"}, body("T", "U", counter=9, state=7)),
    *SHOW,
    ("unregister", 104, REPLICA, None),
    ("unregister nobody", 104, {**REPLICA, "brokerName": "nobody"}, None),
    *SHOW,
    ("acting replica", 103, ACTING, body("A", "B")),
    ("route of A", 105, {"topic": "A"}, None),
    ("acting master", 103, {**ACTING, "brokerId": "0", "brokerAddr": "127.0.0.1:7"}, body("A", "B", counter=2)),
    ("route of A with a master", 105, {"topic": "A"}, None),
    ("acting master leaves", 104, {**ACTING, "brokerId": "0", "brokerAddr": "127.0.0.1:7"}, None),
    ("route of A without a master", 105, {"topic": "A"}, None),
    ("no body", 103, {**OLD, "brokerName": "old"}, None),
    *SHOW,
    ("unknown request", 10, None, None),
]
# Java is silent about a key that it does not know. Its clients look at the remarks of failures only.
SAID_BESIDES = {"update": "nothing reads noSuchKey"}
ANY_VALUE = {"brokerAddr"}  # in a list of system topics: the address of some broker, which one is chance


@pytest.fixture(scope="module")
def twinlog_answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Command]]:
    with Twinlog().name_server(tmp_path_factory.mktemp("twinlog")) as server:
        return asyncio.run(ask_all(server.address, SCRIPT))


def test_every_answer_is_that_of_the_newest_java(tmp_path: Path, twinlog_answers: list[tuple[str, Command]]) -> None:
    with JavaRocketmq("5.5.0").name_server(tmp_path) as server:
        java = asyncio.run(ask_all(server.address, SCRIPT))
    assert differences(java, twinlog_answers) == []


async def ask_all(address: str, script: list[Any]) -> list[tuple[str, Command]]:
    connection = await connect(address, ConnectionOptions())
    answers = []
    try:
        for name, code, fields, data in script:
            answers.append((name, await connection.request(code, fields, data, timeout_ms=30_000)))
            if code == 104:
                await gone(connection, fields["brokerAddr"])
    finally:
        connection.close()
    return answers


async def gone(connection: Connection, broker: str) -> None:
    """Return once no broker has this address. Java takes it out a little after it has answered."""
    async with asyncio.timeout(60):
        while f'"{broker}"'.encode() in ((await connection.request(106, timeout_ms=30_000)).body or b""):
            await asyncio.sleep(0.02)


def differences(java: list[tuple[str, Command]], ours: list[tuple[str, Command]]) -> list[str]:
    found = []
    for number, ((name, theirs), (_, mine)) in enumerate(zip(java, ours, strict=True)):
        for part in ("code", "remark", "fields"):
            a, b = getattr(theirs, part), getattr(mine, part)
            if part == "remark" and name in SAID_BESIDES:
                a = SAID_BESIDES[name]
            if (a or None) != (b or None):
                found.append(f"{number} {name}: {part} is {b!r}, Java's is {a!r}")
        a, b = meaning(theirs.body), meaning(mine.body)
        if a != b:
            found.append(f"{number} {name}: body is {b!r}, Java's is {a!r}")
    return found


def meaning(data: bytes | None) -> Any:
    """What a body says, without the order that Java's hash maps give to their keys."""
    if data is None:
        return None
    try:
        return ordered(loads(data))
    except WireError:
        return data


def ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): ordered(member) for key, member in value.items() if key not in ANY_VALUE}
    if isinstance(value, list):
        return sorted((ordered(member) for member in value), key=repr)
    return value
