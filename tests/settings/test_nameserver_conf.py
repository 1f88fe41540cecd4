from twinlog.settings.nameserver_conf import load_nameserver_conf


def test_a_name_server_file_is_where_its_updates_go(tmp_path):
    (tmp_path / "n.conf").write_text("listenPort=1\n")
    conf = load_nameserver_conf(tmp_path / "n.conf")
    assert conf.nameserver.config_path == str(tmp_path / "n.conf")
    assert conf.warnings == ()
