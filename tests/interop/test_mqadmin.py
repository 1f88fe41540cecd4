"""The real mqadmin 5.5.0: each command runs on a Twinlog cluster and on a real one that were prepared alike.

Outputs are compared after addresses, times, ids, versions and rates are taken out. What remains different is listed
in DIFFERENCES, with the reason; nothing else may differ.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from tests.interop.admin_session import AdminSession
from tests.interop.clusters import Clusters, server_names
from tests.interop.java_rocketmq import JavaRocketmq

pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]

Lines = list[str]
View = Callable[[Lines], Lines]


def as_printed(lines: Lines) -> Lines:
    return lines


def in_any_order(lines: Lines) -> Lines:
    """Java prints hash maps in an order of its own."""
    return sorted(lines)


def names_only(lines: Lines) -> Lines:
    """The left side of `name : value` and `name = value` lines."""
    return sorted({re.split(r"\s*[:=]\s", f"{line} ")[0] for line in lines})


def of_lasting_clients(lines: Lines) -> Lines:
    """Without the clients of mqadmin itself, which come and go."""
    return sorted(line for line in lines if re.search(r"@admin-|G_Admin|#Group", line))


def without_counts(lines: Lines) -> Lines:
    """Without numbers at the end of a line; Java takes them from samples that are up to a minute old."""
    return sorted(re.sub(r"( <n>| \d+)+$", "", line) for line in lines)


def first_words(lines: Lines) -> Lines:
    return sorted(line.split(" ")[0] for line in lines)


@dataclass(frozen=True)
class Command:
    """One mqadmin command line, and how its output is looked at."""

    line: str
    view: View = as_printed

    @property
    def name(self) -> str:
        return self.line.split(" ")[0]


# The order matters: later commands look at what earlier ones changed.
COMMANDS = [
    Command("updateTopic -b {broker} -t AdminNew -r 2 -w 2"),
    Command("updateTopic -c DefaultCluster -t AdminOrdered -r 3 -w 3 -o true"),
    Command("updateTopic -b {broker} -t bad/name -r 2 -w 2"),
    Command(f"updateTopic -b {{broker}} -t {'long' * 32} -r 2 -w 2"),
    Command("topicRoute -t T_Admin"),
    Command("topicRoute -t NoSuchTopic"),
    Command("topicStatus -t T_Admin"),
    Command("topicClusterList -t T_Admin"),
    Command("topicList", in_any_order),
    Command("topicList -c", in_any_order),
    Command("updateTopicPerm -t AdminNew -p 4 -b {broker}"),
    Command("updateSubGroup -b {broker} -g AdminGroup -r 3 -q 2"),
    Command("updateSubGroup -b {broker} -g bad/name"),
    Command("getConsumerConfig -g AdminGroup"),
    Command("clusterList"),
    Command("clusterList -m"),
    Command("brokerStatus -b {broker}", names_only),
    Command("updateBrokerConfig -b {broker} -k fileReservedTime -v 50"),
    Command("queryMsgById -t T_Admin -i {offset_id} -d {home}"),
    Command("queryMsgByKey -t T_Admin -k admin-key-3"),
    Command("queryMsgByKey -t T_Admin -k no-such-key"),
    Command("queryMsgByUniqueKey -t T_Admin -i {id} -d {home}"),
    Command("queryMsgByOffset -t T_Admin -b broker-a -i 0 -o 1"),
    Command("printMsg -t T_Admin", in_any_order),
    Command("printMsgByQueue -t T_Admin -a broker-a -i 1 -p true -d true"),
    Command("consumeMessage -t T_Admin -b broker-a -i 2 -c 3 -g AdminPeek"),
    Command("sendMessage -t AdminOrdered -p hello -k sendkey -c sendtag -b broker-a -i 1"),
    Command("sendMsgStatus -b broker-a -s 128 -c 2"),
    Command("checkMsgSendRT -t AdminOrdered -a 2 -s 128", first_words),
    Command("producerConnection -g P_Admin -t T_Admin"),
    Command("producerConnection -g NoSuchProducer -t T_Admin"),
    Command("producer -b {broker}", of_lasting_clients),
    Command("consumerConnection -g G_Admin"),
    Command("consumerConnection -g NoSuchGroup"),
    Command("consumerProgress -g G_Admin"),
    Command("consumerProgress", of_lasting_clients),
    Command("consumerStatus -g G_Admin"),
    Command("brokerConsumeStats -b {broker}", in_any_order),
    Command("statsAll -t T_Admin", without_counts),
    Command("statsAll", without_counts),
    Command("cloneGroupOffset -s G_Admin -d NoSuchClone -t T_Admin"),
    Command("updateSubGroup -b {broker} -g AdminClone"),
    Command("cloneGroupOffset -s G_Admin -d AdminClone -t T_Admin"),
    Command("resetOffsetByTime -g G_Admin -t T_Admin -s now", in_any_order),
    Command("skipAccumulatedMessage -g G_Admin -t T_Admin", in_any_order),
    Command("updateKvConfig -s AdminSpace -k akey -v avalue"),
    Command("deleteKvConfig -s AdminSpace -k akey"),
    Command("updateOrderConf -t AdminNew -m put -v broker-a:4"),
    Command("updateOrderConf -t AdminNew -m get"),
    Command("updateOrderConf -t AdminNew -m delete"),
    Command("wipeWritePerm -b broker-a"),
    Command("topicRoute -t T_Admin"),
    Command("addWritePerm -b broker-a"),
    Command("cleanExpiredCQ -b {broker}"),
    Command("cleanUnusedTopic -b {broker}"),
    Command("deleteExpiredCommitLog -b {broker}"),
    Command("allocateMQ -t T_Admin -i 127.0.0.1,127.0.0.2"),
    Command("updateNamesrvConfig -k scanNotActiveBrokerInterval -v 6000"),
    Command("queryCq -t T_Admin -q 1 -i 0 -c 2 -b {broker}"),
    Command("queryCq -t T_Admin -q 1 -i 0 -c 2 -b {broker} -g G_Admin"),
    Command("haStatus -b {broker}"),
    Command("setConsumeMode -b {broker} -t T_Admin -g AdminGroup -m PULL -q 0"),
    Command("setConsumeMode -b {broker} -t %RETRY%G_Admin -g AdminGroup -m PULL -q 0"),
    Command("exportMetadata -c DefaultCluster -f {home}/export"),
    Command("exportConfigs -c DefaultCluster -f {home}/export"),
    Command("exportMetrics -c DefaultCluster -f {home}/export"),
    Command("deleteSubGroup -b {broker} -g AdminGroup"),
    Command("deleteTopic -c DefaultCluster -t AdminOrdered"),
    Command("topicRoute -t AdminOrdered"),
]


@dataclass(frozen=True)
class Difference:
    """Lines that only one side prints (patterns), and why that is right."""

    commands: str
    java_only: str
    twinlog_only: str
    reason: str


ROCKSDB = "RMQ_SYS_ROCKSDB_TRANS_"
DIFFERENCES = [
    Difference("topicList statsAll", ROCKSDB, "", "topics of 5.5.0's RocksDB transaction store, which we do not have"),
    Difference("wipeWritePerm addWritePerm", r"OK, \d+$", r"OK, \d+$", "counts topics, so those two are missing"),
    Difference("brokerStatus", "", "^brokerVersion :", "5.5.0 has dropped it, 4.x and 5.3 tools print it"),
    Difference("brokerStatus", "", "^twinlogVersion :", "our own version, beside the protocol's"),
]

# Settings that only we have; all others that we print have Java's names.
OWN_SETTINGS = {
    "haCopyWholeHistory": "a new replica may copy all segments, not only the newest",
    "haBusyWaitMicros": "a pair in SYNC does not sleep between messages that follow one another closely",
    "haReseedAllowed": "a replica with a foreign log may start again from nothing",
    "maxAutoCreatedGroups": "Java has no limit: one client fills memory and files with groups",
    "maxAutoCreatedTopics": "Java has no limit: one client fills memory and files with topics",
    "maxClientIdLength": "Java has no limit",
    "maxGroupsPerClient": "Java has no limit",
    "maxHeldPulls": "Java has no limit",
    "maxHeldPullsPerConnection": "Java has no limit",
    "maxKvLength": "Java has no limit",
    "maxKvTableLength": "Java has no limit",
    "maxRouteTopics": "Java has no limit",
    "maxSendBackBytesPerSecond": "Java copies a message for every request that names it",
    "maxSubscriptionsPerGroup": "Java has no limit",
    "maxSubscriptionLengthPerGroup": "Java has no limit",
    "maxUnfinishedFrameBytes": "Java has no limit: 60 begins of frames hold a gigabyte",
    "frameProgressTimeoutSeconds": "Java waits for the rest of a frame as long as the peer is not idle",
    "maxTopicQueueNums": "Java takes any number of queues, and its clients run out of memory over them",
    "slaveMetadataPush": "metadata travels when it changes",
    "slaveMetadataSyncFirstDelay": "in Java a constant",
    "slaveMetadataSyncInterval": "in Java a constant",
    "connectTimeoutMillis": "in Java a client setting",
    "storeDirectoryMode": "Java leaves who may read its directories to the umask",
    "storeFileMode": "Java leaves who may read its files to the umask",
    "adminRequestsFrom": "Java takes administration from anybody",
    "haReplicasFrom": "Java sends its log to anybody",
    "haTlsEnable": "Java has no TLS on the HA port",
    "haTlsRequired": "Java has no TLS on the HA port",
    "proxyProtocolFrom": "Java believes a PROXY line from anybody",
    "maxConnections": "Java has no limit",
    "maxConnectionsPerAddress": "Java has no limit",
    "maxReplicaConnections": "Java has no limit",
    "maxWaitingRequestsPerConnection": "Java has no limit",
    "maxErrorsInARowPerConnection": "Java has no limit",
    "maxClientRegistrations": "Java has no limit",
    "maxSubscriptionLength": "Java has no limit",
    "maxFilterLength": "Java has no limit",
    "maxLocks": "Java has no limit",
    "maxLocksPerGroup": "Java has no limit",
    "maxQueryBytes": "Java has no limit",
    "maxQueueEntriesPerQuery": "Java has no limit",
    "maxDecompressedRegistrationBytes": "Java has no limit",
    "maxLogLinesPerSecond": "Java has no limit",
    "clientsWithoutAccountsFrom": "a Java replica serves to strangers what its master protects",
    "haRepairFromTwin": "Java does not repair its log",
    "accountsKeyFile": "Java keeps secrets in clear text",
    "aclEnable": "5.5.0 has dropped it",
    "rocketmqHome": "Java takes it from the environment",
}
# TLS: system properties in Java, which mqadmin does not show; nor does it show the settings of accounts.
OWN_PREFIXES = ("tls.", "failover", "auditLog", "auth")

# Settings of the same name whose values differ, with the reason.
OTHER_VALUES = {
    "haTransferBatchSize": "larger transfers; a Java replica takes them as well",
    "slaveTimeout": "below the clients' own 3 s, so that FLUSH_SLAVE_TIMEOUT reaches them",
    "slaveReadEnable": "our replicas serve reads unless told otherwise, as those of 4.x do",
    "listenPort": "each cluster has its own",
    "namesrvAddr": "each cluster has its own",
    "storePathRootDir": "each cluster has its own",
    "storePathCommitLog": "each cluster has its own",
    "haListenPort": "each cluster has its own",
    "kvConfigPath": "each cluster has its own",
    "configStorePath": "each cluster has its own",
    "brokerConfigPath": "each cluster has its own",
    "rocketmqHome": "each cluster has its own",
}


@pytest.fixture(scope="module")
def sessions(
    clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[AdminSession, AdminSession]]:
    """The real cluster first, then ours. TWINLOG_INTEROP_SERVERS=java-5.5.0 compares two real ones: nothing differs."""
    rocketmq = JavaRocketmq()
    pair = [clusters.get(rocketmq.name, use="mqadmin"), clusters.get(server_names()[0], use="mqadmin-compared")]
    with contextlib.ExitStack() as stack:
        first, second = (
            stack.enter_context(AdminSession(rocketmq, cluster, tmp_path_factory.mktemp("mqadmin"))) for cluster in pair
        )
        yield first, second


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.line)
def test_mqadmin_prints_the_same_for_both(command: Command, sessions: tuple[AdminSession, AdminSession]):
    with ThreadPoolExecutor(2) as threads:  # many of the commands wait for 3 s before they end
        java, ours = threads.map(lambda session: session.steady(session.run(command.line.split(" "))), sessions)
    for difference in DIFFERENCES:
        if command.name in difference.commands.split():
            java = [line for line in java if not _matches(difference.java_only, line)]
            ours = [line for line in ours if not _matches(difference.twinlog_only, line)]
    java, ours = command.view(java), command.view(ours)
    assert ours == java, "\n".join(difflib.unified_diff(java, ours, "java", "twinlog", lineterm="", n=0))


# Java accepts all of these; some of them count only with a store or a mode that we do not have.
WITHOUT_EFFECT = [
    "updateTopic -b {broker} -t AdminCompact -a +cleanup.policy=COMPACTION",
    "updateTopic -b {broker} -t AdminReserve -a +reserve.time=60000",
    "setConsumeMode -b {broker} -t T_Admin -g AdminPop -m POP -q 0",
    "resetMasterFlushOffset -b {broker} -o 0",
]


@pytest.mark.parametrize("line", WITHOUT_EFFECT)
def test_mqadmin_shows_why_a_request_without_effect_is_refused(line: str, sessions: tuple[AdminSession, AdminSession]):
    if server_names()[0] != "twinlog":
        pytest.skip("Java accepts it")
    output = sessions[1].run(line.split(" "))
    assert re.search(r"CODE: \d+ +DESC: .* would have no effect: ", output), output
    assert "success" not in output


@pytest.mark.parametrize("line", ["getBrokerConfig -b {broker}", "getNamesrvConfig"])
def test_settings_have_the_names_and_values_that_java_shows(line: str, sessions: tuple[AdminSession, AdminSession]):
    java, ours = (settings(session.run(line.split(" "))) for session in sessions)
    unknown = {name for name in ours if name not in java and not name.startswith(OWN_PREFIXES)}
    assert unknown <= set(OWN_SETTINGS)
    both = (java.keys() & ours.keys()) - set(OTHER_VALUES)
    assert len(both) > 15
    assert {name: ours[name] for name in both} == {name: java[name] for name in both}


def settings(output: str) -> dict[str, str]:
    return dict(re.findall(r"^(\S+) += +(.*?) *$", output, re.MULTILINE))


def test_at_least_25_different_commands_are_compared():
    assert len({command.name for command in COMMANDS}) >= 25


def _matches(pattern: str, line: str) -> bool:
    return bool(pattern) and bool(re.search(pattern, line))
