"""Twinlog's own request codes, used between Twinlog peers only.

A Java peer answers REQUEST_CODE_NOT_SUPPORTED, so a Twinlog replica knows whether its master is Twinlog or Java.
The numbers fit the 16-bit code of binary headers and are far from any that RocketMQ uses.
"""

from enum import IntEnum


class TwinlogCode(IntEnum):
    REPLICA_HELLO = 30901  # a replica introduces itself and gets a pass for the HA port
    LOG_DIGESTS = 30902  # checksums of commit-log ranges
    METADATA_CHANGES = 30903  # what changed in a metadata table since a revision
    OFFSETS_CARRIED_BACK = 30904  # consumer offsets that moved on at the replica while its master was away
    METADATA_CHANGED = 30905  # a master notifies its replica, oneway, that a table has changed
    REPLICATION_STATUS = 30906  # the state of replication, as JSON
    CHANGE_ROLE = 30907  # become master or replica at run time
    ACCOUNTS = 30908  # the accounts of a master, for its replica
    STILL_REGISTERED = 30911  # a name server asks a broker whether it still is what it registered as
    PROVE_SECRET = 30912  # both peers prove that they know haSharedSecret, in two rounds
