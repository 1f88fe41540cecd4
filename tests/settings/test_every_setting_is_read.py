import pathlib
import re

import pytest

import twinlog
from twinlog.settings.broker_conf import PARTS
from twinlog.settings.conf import keyed_fields
from twinlog.settings.known_keys import JAVA_KEYS
from twinlog.settings.nameserver import NameServerSettings

SOURCE = pathlib.Path(twinlog.__file__).parent
# Keys that Java does not have. Everything else must be spelled as Java spells it.
OWN_KEYS = {
    "metricsPort",
    "adminRequestsFrom",
    "maxConnections",
    "maxWaitingRequestsPerConnection",
    "maxErrorsInARowPerConnection",
    "maxConnectionsPerAddress",
    "proxyProtocolFrom",
    "haSharedSecret",
    "haTlsEnable",
    "haTlsRequired",
    "haRepairFromTwin",
    "haReplicasFrom",
    "maxReplicaConnections",
    "maxUnfinishedFrameBytes",
    "frameProgressTimeoutSeconds",
    "maxTopicQueueNums",
    "maxRouteTopics",
    "maxKvLength",
    "maxKvTableLength",
    "maxHeldPulls",
    "maxHeldPullsPerConnection",
    "maxSendBackBytesPerSecond",
    "maxAutoCreatedTopics",
    "maxAutoCreatedGroups",
    "maxClientIdLength",
    "maxGroupsPerClient",
    "maxSubscriptionsPerGroup",
    "maxSubscriptionLengthPerGroup",
    "maxClientRegistrations",
    "maxSubscriptionLength",
    "maxFilterLength",
    "maxLocksPerGroup",
    "maxLocks",
    "maxQueryBytes",
    "maxQueueEntriesPerQuery",
    "maxDecompressedRegistrationBytes",
    "maxLogLinesPerSecond",
    "clientsWithoutAccountsFrom",
    "haCopyWholeHistory",
    "haReseedAllowed",
    "haBusyWaitMicros",
    "failoverEtcd",
    "failoverEtcdPrefix",
    "failoverEtcdUser",
    "failoverEtcdPassword",
    "failoverEtcdCa",
    "failoverLeaseSeconds",
    "failoverPriority",
    "failoverMasterRole",
    "slaveMetadataSyncInterval",
    "slaveMetadataSyncFirstDelay",
    "slaveMetadataPush",
    "storeDirectoryMode",
    "storeFileMode",
    "accountsKeyFile",
    "auditLogEnable",
    "auditLogFile",
    "auditLogMaxBytes",
    "auditLogMaxFiles",
}
FIELDS = [(cls, field, key) for cls in (*PARTS, NameServerSettings) for field, key, _ in keyed_fields(cls)]


@pytest.fixture(scope="module")
def attributes_read():
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    return set(re.findall(r"\.([a-z][a-z0-9_]*)\b", text))


def test_a_key_is_either_read_or_warned_about(attributes_read):
    # A field that no code reads is an option that is parsed and ignored; without it, the key is warned about.
    unread = {key.name for _, field, key in FIELDS if field not in attributes_read}
    assert unread == set()


def test_keys_are_java_s_or_known_to_be_our_own():
    odd = {key.name for _, _, key in FIELDS if "." not in key.name} - JAVA_KEYS
    assert odd == OWN_KEYS
