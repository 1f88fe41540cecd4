"""A master and one replica, as answers of brokers."""

from twinlog.cli.replication.report import MIB
from twinlog.observe.cluster.broker_groups import Group, LagFacts, Member


def groups(end, behind, master_end=100 * MIB):
    members = [Member(0, "m", "twinlog", log_end=master_end), Member(1, "r", "twinlog", log_end=end)]
    return [Group("C", "b", members, {1: LagFacts(behind, 7, False, 1500, False, 0)})]
