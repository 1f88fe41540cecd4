"""Registrations for tests of the route table."""

from twinlog.nameserver.registration import Identity, Registration
from twinlog.nameserver.registration_body import RegisteredTopic
from twinlog.wire.bodies import DataVersion

V1, V2 = DataVersion(0, 1, 1), DataVersion(0, 2, 2)


def topics(*names, **more):
    return {name: RegisteredTopic(read_queue_nums=4, write_queue_nums=4, **more) for name in names}


def registration(broker_id=0, address=None, *, name="broker-a", **more):
    defaults = {
        "cluster": "C",
        "broker_name": name,
        "broker_id": broker_id,
        "address": address or f"{name}:{broker_id}",
        "ha_address": f"ha-{name}:{broker_id}",
        "acting_master": False,
        "topics": topics("T", "TBW102"),
        "version": V1,
    }
    return Registration(**{**defaults, **more})


def leaving(broker_id=0, address=None, *, name="broker-a"):
    return Identity("C", name, address or f"{name}:{broker_id}", broker_id)
