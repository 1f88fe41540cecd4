import pytest

from .offline import OfflineServer


@pytest.fixture
def server(tmp_path):
    return OfflineServer(tmp_path)


@pytest.fixture
def with_master(server):
    assert server.replay("wire-register-broker-req").code == 0
    return server
