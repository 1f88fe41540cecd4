"""Asks about and changes a cluster: everything `twinlog admin` does, for programs."""

from twinlog.client.admin.messages import AdminMessages
from twinlog.client.admin.replication import AdminReplication
from twinlog.client.admin.resets import AdminResets
from twinlog.client.admin.servers import AdminServers
from twinlog.client.admin.topics import AdminTopics


class Admin(AdminTopics, AdminResets, AdminMessages, AdminServers, AdminReplication):
    """One administrator's session.

        async with Admin("127.0.0.1:9876") as admin:
            await admin.create_topic("Orders", queues=8)
            print(await admin.topics())

    Calls that take an `address` talk to that one broker; the others find their brokers by route.
    """
