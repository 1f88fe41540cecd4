import pytest

from twinlog.settings.broker_conf import PARTS, load_broker_conf
from twinlog.settings.conf import keyed_fields
from twinlog.settings.errors import SettingsError
from twinlog.settings.properties import format_properties


def load(text, **more):
    return load_broker_conf(text=text, environment={}, **more)


def test_one_flat_file_feeds_every_part():
    conf = load("brokerName=b\nfileReservedTime=48\nhaHousekeepingInterval=1000\nserverSocketBacklog=7\n")
    assert conf.broker.broker_name == "b"
    assert conf.store.reserved_hours == 48
    assert conf.replication.silence_ms_max == 1000
    assert conf.net.backlog == 7
    assert conf.warnings == ()


def test_the_defaults_of_the_ports_are_java_s():
    conf = load("")
    assert (conf.broker.listen_port, conf.replication.listen_port) == (10911, 10912)


def test_the_ha_port_follows_the_listen_port_unless_it_is_given():
    assert load("listenPort=20911").replication.listen_port == 20912
    assert load("listenPort=20911\nhaListenPort=0").replication.listen_port == 20912
    assert load("listenPort=20911\nhaListenPort=3").replication.listen_port == 3


def test_a_master_s_id_is_0_whatever_the_file_has():
    assert load("brokerRole=SYNC_MASTER\nbrokerId=3").broker.broker_id == 0


def test_a_replica_needs_an_id_above_0():
    with pytest.raises(SettingsError, match=r"broker.conf:2: brokerId=0 with brokerRole=SLAVE; give every replica"):
        load("brokerRole=SLAVE\nbrokerId=0")
    with pytest.raises(SettingsError, match=r"broker.conf:1: brokerId=0"):
        load("brokerRole=SLAVE")


def test_some_directory_takes_new_segments():
    text = "storePathCommitLog=/a,/b\nreadOnlyCommitLogStorePaths=/b"
    assert load(text).store.commit_log_dirs == ("/a", "/b")
    assert "readOnlyCommitLogStorePaths" not in load("").properties()  # as in Java, what is not set is not shown
    with pytest.raises(SettingsError, match=r"broker.conf:2: readOnlyCommitLogStorePaths=/b,/a leaves no directory"):
        load(text + ",/a")


def test_a_replica_serves_less_from_memory_unless_the_key_is_given():
    assert load("brokerRole=SLAVE\nbrokerId=1").store.memory_percent == 30
    assert load("brokerRole=SLAVE\nbrokerId=1\naccessMessageInMemoryMaxRatio=50").store.memory_percent == 50
    assert load("").store.memory_percent == 40


def test_replicas_serve_reads_by_default():
    assert load("").broker.replica_reads is True


def test_in_sync_replicas_may_be_unset():
    assert load("").replication.in_sync_replicas is None
    assert load("inSyncReplicas=1").replication.in_sync_replicas == 1


def test_old_spellings_are_accepted():
    conf = load("mapedFileSizeCommitLog=4096\nmapedFileSizeConsumeQueue=41\nhaSlaveFallbehindMax=5")
    assert (conf.store.segment_bytes, conf.store.queue_file_bytes, conf.replication.gap_bytes_max) == (4096, 60, 5)


def test_the_registration_period_stays_within_10_and_60_seconds():
    assert load("registerNameServerPeriod=1").broker.register_interval_ms == 10_000
    assert load("registerNameServerPeriod=99999").broker.register_interval_ms == 60_000


def test_the_second_address_follows_the_first():
    assert load("brokerIP1=192.0.2.7").broker.broker_ip2 == "192.0.2.7"
    assert load("brokerIP1=192.0.2.7\nbrokerIP2=192.0.2.8").broker.broker_ip2 == "192.0.2.8"


@pytest.mark.parametrize(
    "line",
    ["namesrvAddr=localhost", "haMasterAddress=h:99999", "deleteWhen=4pm", "messageDelayLevel=1s 2x", "deleteWhen=24"],
)
def test_text_with_a_form_is_checked(line):
    with pytest.raises(SettingsError, match=r"broker.conf:1: .*; write|broker.conf:1: .*for example"):
        load(line)


def test_a_short_master_address_counts_as_not_given_as_in_java():
    assert load("haMasterAddress=192.0.2.1:10912").replication.master_address == "192.0.2.1:10912"
    assert load("haMasterAddress=ab:123").replication.master_address == "ab:123"  # Java: six characters count
    for empty in ("haMasterAddress=", "haMasterAddress=   ", "haMasterAddress"):
        conf = load(empty)
        assert (conf.replication.master_address, conf.warnings) == (None, ())
    conf = load("brokerName=b\nhaMasterAddress=h:123")
    assert conf.replication.master_address is None
    (warning,) = conf.warnings
    text = "haMasterAddress=h:123 counts as not given, as in Java: it has fewer than 6 characters"
    assert str(warning) == f"broker.conf:2: {text}"


def test_the_command_line_wins_over_the_file_and_the_file_over_the_environment():
    environment = {"NAMESRV_ADDR": "e:1"}
    assert load_broker_conf(text="", environment=environment).broker.namesrv_addr == "e:1"
    assert load_broker_conf(text="namesrvAddr=f:1", environment=environment).broker.namesrv_addr == "f:1"
    assert load("namesrvAddr=f:1", overrides={"namesrvAddr": "o:1"}).broker.namesrv_addr == "o:1"


def test_a_bad_option_is_not_reported_as_an_error_of_the_file():
    with pytest.raises(SettingsError, match=r"^command line or environment: listenPort=x is not an integer"):
        load("", overrides={"listenPort": "x"})


def test_a_missing_file_is_an_error_that_names_its_path(tmp_path):
    with pytest.raises(SettingsError, match=r"none.conf: No such file or directory; check the path"):
        load_broker_conf(tmp_path / "none.conf")


def test_a_file_is_utf_8_or_latin_1(tmp_path):
    for encoding in ("utf-8", "iso-8859-1"):
        (tmp_path / "broker.conf").write_bytes("regionId=Zürich".encode(encoding))
        assert load_broker_conf(tmp_path / "broker.conf").broker.region_id == "Zürich"


def test_a_tls_file_adds_to_the_main_file(tmp_path):
    (tmp_path / "tls.properties").write_text("tls.server.certPath=/c.pem\ntls.server.keyPassword=secret\nodd=1\n")
    conf = load(f"tls.server.mode=enforcing\ntls.config.file={tmp_path}/tls.properties")
    assert (conf.net.tls.server_mode, conf.net.tls.server_cert_path) == ("enforcing", "/c.pem")
    assert str(conf.warnings[0]).endswith("tls.properties:3: odd is unknown, ignored; check its spelling")
    assert "secret" not in conf.properties().values()


def test_the_dump_reads_back_as_the_same_settings():
    conf = load("brokerRole=SLAVE\nbrokerId=2\nlistenPort=20911\nnamesrvAddr=h:1\nslaveReadEnable=false")
    again = load(format_properties(conf.properties()))
    assert (again.broker, again.store, again.replication, again.net) == (
        conf.broker,
        conf.store,
        conf.replication,
        conf.net,
    )
    assert again.warnings == ()


def test_no_two_parts_share_a_key():
    names = [key.name for part in PARTS for _, key, _ in keyed_fields(part)]
    assert len(names) == len(set(names))


def test_with_failover_every_broker_starts_as_a_replica_that_copies_everything():
    text = "failoverEtcd=a:2379,b:2379\nbrokerRole=SLAVE\nbrokerId=2\nfailoverEtcdPassword=secret"
    conf = load(text)
    assert conf.failover.endpoints == ["a:2379", "b:2379"]
    assert (conf.replication.copy_whole_history, conf.replication.metadata_pushed) == (True, True)
    assert "secret" not in conf.properties().values()
    assert load(f"{text}\nhaCopyWholeHistory=false").replication.copy_whole_history is False
    for wrong, remedy in (
        ("failoverEtcd=a:2379", "brokerRole=SLAVE"),
        (f"{text}\nhaMasterAddress=h:10912", "remove it"),
        ("failoverEtcd=a", "is not host:port"),
        (f"{text}\nfailoverEtcdPrefix=x/", "/twinlog"),
    ):
        with pytest.raises(SettingsError, match=remedy):
            load(wrong)
