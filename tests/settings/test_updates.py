"""An admin request changes what may change while a server runs, and nothing else."""

import time
from typing import get_args

import pytest

from twinlog.settings.broker_conf import PARTS, BrokerConf, load_broker_conf
from twinlog.settings.conf import keyed_fields
from twinlog.settings.conf_file import rewrite_file
from twinlog.settings.errors import SettingsError
from twinlog.settings.nameserver import NameServerSettings
from twinlog.settings.properties import format_properties, parse_properties
from twinlog.settings.updates import UpdateRefused, plan_broker_update, plan_nameserver_update, split_role


def load(text, **more):
    return load_broker_conf(text=text, environment={}, **more)


def test_an_update_takes_the_master_address_away_and_the_file_forgets_it():
    conf = load("haMasterAddress=192.0.2.1:10912")
    update = plan_broker_update(conf, "haMasterAddress=\n")
    assert update.settings.replication.master_address is None
    assert (update.changed, update.warnings) == ({"haMasterAddress": ""}, ())
    update = plan_broker_update(conf, "haMasterAddress=none\n")
    assert (update.settings.replication.master_address, update.changed) == (None, {"haMasterAddress": ""})
    assert update.warnings == (
        "update:1: haMasterAddress=none counts as not given, as in Java: it has fewer than 6 characters",
    )
    assert plan_broker_update(update.settings, "haMasterAddress=\n").changed == {}


def test_an_update_gives_no_master_to_a_broker_whose_master_etcd_knows():
    conf = load("failoverEtcd=192.0.2.1:2379\nbrokerRole=SLAVE\nbrokerId=1\n")
    with pytest.raises(SettingsError, match="etcd knows the master"):
        plan_broker_update(conf, "haMasterAddress=192.0.2.1:10912\n")
    assert plan_broker_update(conf, "haMasterAddress=\n").changed == {}


def test_an_update_changes_only_what_differs():
    conf = load("fileReservedTime=48")
    update = plan_broker_update(conf, "fileReservedTime=24\nbrokerPermission=4\nlistenPort=10911\nnoSuchKey=1")
    assert (update.settings.store.reserved_hours, update.settings.broker.permission) == (24, 4)
    assert update.changed == {"fileReservedTime": "24", "brokerPermission": "4"}
    assert update.ignored == ("noSuchKey",)


def test_a_whole_dump_with_one_edited_line_is_an_update():
    conf = load("")
    text = format_properties({**conf.properties(), "slaveReadEnable": "false"})
    assert plan_broker_update(conf, text).changed == {"slaveReadEnable": "false"}


@pytest.mark.parametrize("key", ["configBlackList", "brokerConfigPath", "rocketmqHome"])
def test_black_listed_keys_are_refused_as_java_refuses_them(key):
    with pytest.raises(UpdateRefused, match=r"^Can not update config in black list\.$"):
        plan_broker_update(BrokerConf(), f"brokerPermission=4\n{key}=x")


def test_an_update_cannot_move_the_store():
    with pytest.raises(UpdateRefused, match="storePathRootDir=/etc: only a restart changes this"):
        plan_broker_update(load(""), "storePathRootDir=/etc")


@pytest.mark.parametrize(
    "line",
    [
        "messageIndexEnable=false",
        "defaultTopicQueueNums=3",
        "consumerOffsetUpdateVersionStep=3",
        "delayOffsetUpdateVersionStep=3",
    ],
)
def test_what_is_read_only_at_the_start_cannot_be_updated(line):
    with pytest.raises(UpdateRefused, match=f"{line}: only a restart changes this"):
        plan_broker_update(load(""), line)


def test_an_update_with_very_many_unknown_keys_is_cheap_and_reported_briefly():
    began = time.perf_counter()
    update = plan_broker_update(load(""), "".join(f"messageIndexEnabl{n}=1\n" for n in range(10_000)))
    assert time.perf_counter() - began < 5  # looking for near names would take a minute
    assert len(update.ignored) == 10_000
    assert update.ignored_text.endswith("messageIndexEnabl9 and 9990 more")


def test_an_update_larger_than_any_configuration_is_refused():
    for read in (lambda text: plan_broker_update(load(""), text), lambda text: split_role(text, load(""))):
        with pytest.raises(SettingsError, match="update: 300000 characters are too many; send at most 262144"):
            read("x" * 300_000)


def test_a_bad_value_in_an_update_changes_nothing():
    with pytest.raises(SettingsError, match="update:1: brokerPermission=9 is outside 0 to 7"):
        plan_broker_update(load(""), "brokerPermission=9")


def test_a_role_change_takes_role_and_id_together():
    master = load("")
    replica = plan_broker_update(master, "brokerRole=SLAVE\nbrokerId=1").settings
    assert (replica.broker.broker_role, replica.broker.broker_id) == ("SLAVE", 1)
    with pytest.raises(SettingsError, match="brokerId=0 with brokerRole=SLAVE"):
        plan_broker_update(master, "brokerRole=SLAVE")
    assert plan_broker_update(replica, "brokerRole=SYNC_MASTER").settings.broker.broker_id == 0


def test_a_name_server_update_respects_its_black_list():
    settings = NameServerSettings()
    assert plan_nameserver_update(settings, "orderMessageEnable=true").settings.order_topics_in_routes
    for key in ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"):
        with pytest.raises(UpdateRefused, match="black list"):
            plan_nameserver_update(settings, f"{key}=x")


def test_no_key_that_a_request_may_change_names_a_file_or_a_program():
    """CVE-2023-33246 and CVE-2023-37582 were such keys. A new one belongs here only if it is neither."""
    texts = {
        key.name
        for cls in PARTS
        for _, key, kind in keyed_fields(cls)
        if key.updatable and str in (kind, *get_args(kind))
    }
    assert texts == {"namesrvAddr", "haMasterAddress", "haReplicasFrom", "deleteWhen"}
    assert not [
        key for cls in (NameServerSettings,) for _, key, kind in keyed_fields(cls) if key.updatable and kind is str
    ]


@pytest.mark.parametrize("key", ["namesrvAddr", "haMasterAddress", "haReplicasFrom", "deleteWhen"])
def test_a_value_does_not_bring_a_second_line_into_the_file(key, tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\n")
    conf = load_broker_conf(file, environment={})
    try:
        update = plan_broker_update(conf, f"{key}=192.0.2.1\\n\\rbrokerRole=SLAVE")
    except SettingsError:
        return
    rewrite_file(file, update.changed)
    assert [entry.key for entry in parse_properties(file.read_text())] in (["brokerName"], ["brokerName", key])
