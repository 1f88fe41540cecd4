import pytest
from tests.store.store_at import bodies, draft, settings_at

from twinlog.store.errors import PluginError
from twinlog.store.message_store import MessageStore
from twinlog.store.plugins import StoreWrapper, open_store


class Shouting(StoreWrapper):
    def append(self, message):
        message.body = bytes(message.body).upper()
        return self.inner.append(message)


class Doubling(StoreWrapper):
    def append(self, message):
        self.inner.append(message)
        return self.inner.append(message)


def shouting(store, settings):
    return Shouting(store)


def doubling(store, settings):
    return Doubling(store)


def nothing(store, settings):
    return None


NOT_CALLABLE = 1


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "store_plugins_under_test", sys.modules[__name__])


def test_wrappers_stand_around_the_store_the_last_one_outermost(tmp_path):
    names = "store_plugins_under_test:shouting, store_plugins_under_test:doubling"
    with open_store(settings_at(tmp_path, plugins=names)) as store:
        assert isinstance(store, Doubling) and isinstance(store.inner, Shouting)
        assert store.append(draft(1)).queue_offset == 1
        store.dispatch_pending()
        assert bodies(store) == [b"BODY 1", b"BODY 1"]
        assert store.keeps_delay_offsets
    assert not (tmp_path / "store" / "abort").exists()


def test_without_plugins_the_broker_gets_the_store_itself(tmp_path):
    with open_store(settings_at(tmp_path)) as store:
        assert isinstance(store, MessageStore)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("org.example.Plugin", "module:factory"),
        ("no_such_module_anywhere:factory", "cannot be imported"),
        ("store_plugins_under_test:missing", "no callable"),
        ("store_plugins_under_test:NOT_CALLABLE", "no callable"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_before_the_store_is_touched(tmp_path, name, why):
    with pytest.raises(PluginError, match=why):
        open_store(settings_at(tmp_path, plugins=name))
    assert not (tmp_path / "store").exists()


def test_a_factory_that_returns_nothing_leaves_the_store_closed(tmp_path):
    with pytest.raises(PluginError, match="returned None"):
        open_store(settings_at(tmp_path, plugins="store_plugins_under_test:nothing"))
    open_store(settings_at(tmp_path)).close()
