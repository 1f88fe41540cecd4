from typing import ClassVar

import pytest
from tests.store.store_at import bodies, draft, fill, kill, settings_at

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


class Watching(StoreWrapper):
    def load(self):
        before = self.inner.log_end
        self.inner.load()
        self.ends = (before, self.inner.log_end)


class Follower:
    """A dispatcher that keeps the offsets it was given, and loses those it did not flush with the process."""

    flushed: ClassVar[list[int]] = []

    def __init__(self):
        self.seen = list(self.flushed)

    def dispatch(self, batch):
        self.seen += [one.physical_offset for one in batch if one.physical_offset not in self.seen]

    def flush(self):
        Follower.flushed = list(self.seen)


class EndKeeper:
    """A dispatcher that keeps the end of the last record it took, durably, as the manual advises."""

    end: ClassVar[int] = 0

    def __init__(self):
        self.taken, self.cuts = [], []

    def dispatch(self, batch):
        for one in batch:
            if one.physical_offset >= EndKeeper.end:
                self.taken.append(one.physical_offset)
                EndKeeper.end = one.physical_offset + one.size

    def flush(self):
        pass

    def truncate_after(self, log_end):
        self.cuts.append(log_end)
        EndKeeper.end = min(EndKeeper.end, log_end)


def shouting(store, context):
    return Shouting(store)


def doubling(store, context):
    return Doubling(store)


def watching(store, context):
    return Watching(store)


def following(store, context):
    store.follower = Follower()
    store.add_dispatcher(store.follower)
    return store


def keeping_the_end(store, context):
    store.follower = EndKeeper()
    store.add_dispatcher(store.follower)
    return store


def explaining(store, context):
    wrapper = StoreWrapper(store)
    wrapper.context = context
    return wrapper


def nothing(store, context):
    return None


def failing(store, context):
    raise RuntimeError("no licence")


NOT_CALLABLE = 1


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "store_plugins_under_test", sys.modules[__name__])


def test_wrappers_stand_around_the_store_the_first_one_outermost(tmp_path):
    # Java's MessageStoreFactory goes through the names from the last to the first.
    names = "store_plugins_under_test:doubling, store_plugins_under_test:shouting"
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


def test_a_factory_that_fails_leaves_the_store_as_it_was(tmp_path):
    with pytest.raises(RuntimeError, match="no licence"):
        open_store(settings_at(tmp_path, plugins="store_plugins_under_test:failing"))
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["lock"]
    open_store(settings_at(tmp_path)).close()


def test_a_plug_in_sees_the_store_before_and_after_it_is_loaded(tmp_path):
    with open_store(settings_at(tmp_path)) as store:
        fill(store, 3)
        end = store.log_end
    with open_store(settings_at(tmp_path, plugins="store_plugins_under_test:watching")) as store:
        assert store.ends == (0, end)


@pytest.fixture
def followed(tmp_path):
    Follower.flushed = []
    return settings_at(tmp_path, plugins="store_plugins_under_test:following")


def test_an_added_dispatcher_follows_the_log(followed):
    with open_store(followed) as store:
        places = [one.physical_offset for one in fill(store, 3)]
        assert store.follower.seen == places
        assert type(store) is MessageStore  # whoever only follows does not slow the sends
    assert Follower.flushed == places
    with open_store(followed) as store:
        assert store.follower.seen == places


@pytest.mark.parametrize("queues_flushed", [False, True])
def test_after_a_crash_an_added_dispatcher_gets_what_it_had_not_flushed(followed, queues_flushed):
    store = open_store(followed)
    places = [one.physical_offset for one in fill(store, 3)]
    store.flush()
    if queues_flushed:  # recovery finds every record in queues and index, and the follower has none of them
        store.queues.flush()
        store.index.flush()
    kill(store)
    assert Follower.flushed == []
    with open_store(followed) as store:
        assert store.follower.seen == places


@pytest.fixture
def end_kept(tmp_path):
    EndKeeper.end = 0
    return settings_at(tmp_path, plugins="store_plugins_under_test:keeping_the_end")


def test_a_follower_takes_what_comes_after_the_log_was_cut(end_kept):
    with open_store(end_kept) as store:
        places = [one.physical_offset for one in fill(store, 5)]
        store.cut_tail(places[2], now_ms=1)
        assert store.follower.cuts[-1] == places[2]
        again = [one.physical_offset for one in fill(store, 1)]
        assert again == places[2:3]
        assert store.follower.taken == places + again


def test_a_follower_takes_what_comes_after_the_log_was_set_aside(end_kept):
    with open_store(end_kept) as store:
        places = [one.physical_offset for one in fill(store, 5)]
        store.set_log_aside(now_ms=1)
        assert store.follower.cuts[-1] == 0
        again = [one.physical_offset for one in fill(store, 1)]
        assert again == places[:1]
        assert store.follower.taken == places + again


def test_a_follower_that_is_ahead_of_the_recovered_log_takes_what_comes_next(end_kept):
    with open_store(end_kept) as store:
        fill(store, 5)
        end = store.log_end
    EndKeeper.end = end + 1000  # it had flushed records that a power failure took from the log
    with open_store(end_kept) as store:
        assert store.follower.cuts == [end]
        again = [one.physical_offset for one in fill(store, 1)]
        assert store.follower.taken == again == [end]


def test_a_follower_need_not_know_of_cuts_and_a_failing_one_refuses_sends_until_it_flushes(followed, end_kept):
    with open_store(followed) as store:
        places = [one.physical_offset for one in fill(store, 2)]
        store.cut_tail(places[1], now_ms=1)
    with open_store(end_kept) as store:
        places = [one.physical_offset for one in fill(store, 2)]
        store.follower.truncate_after = fail_to_cut
        store.cut_tail(places[1], now_ms=2)
        assert store.queues_failed
        store.flush_queues()
        assert not store.queues_failed


def fail_to_cut(log_end):
    raise OSError(28, "No space left on device")


def test_records_whose_dispatch_failed_are_not_given_again_while_the_store_is_open(end_kept):
    with open_store(end_kept) as store:
        calls = []

        def fail_once(batch):
            calls.append([one.physical_offset for one in batch])
            if len(calls) == 1:
                raise OSError(28, "No space left on device")

        store.follower.dispatch = fail_once
        first = [one.physical_offset for one in fill(store, 1)]
        assert store.queues_failed
        store.flush_queues()
        second = [one.physical_offset for one in fill(store, 1)]
        assert calls == [first, second]


def test_a_plug_in_gets_the_settings_and_can_report_arrivals(tmp_path):
    settings = settings_at(tmp_path, plugins="store_plugins_under_test:explaining")
    heard = []
    with open_store(settings, stats="counts") as store:
        store.on_arrival.append(heard.append)
        context = store.context
        assert context.store_settings is settings
        assert context.broker_settings.cluster_name == "DefaultCluster"
        assert context.stats == "counts"
        assert context.root_dir == settings.root_dir  # what factories of older versions were given
        context.arrived([])
    assert heard == [[]]
