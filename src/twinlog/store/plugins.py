"""Plug-ins around the store, named by `messageStorePlugIn`.

The setting lists `module:factory` names, separated by commas. The first name is the outermost: it sees a call first,
and decides whether the others do. Each factory is called with the store made so far and a `PluginContext`, and returns
what the broker uses in its place: a wrapper, usually derived from `StoreWrapper`, or the store itself.

    class Counting(StoreWrapper):
        def append(self, draft):
            self.count += 1
            return self.inner.append(draft)

    def factory(store, context):
        store.add_dispatcher(Follower(context.store_settings.root_dir))
        return Counting(store)

As in Java, factories run before the store is loaded: a dispatcher that one adds also gets the records that recovery
dispatches. What needs the loaded store overrides `load`, and reads the store after it has called `self.inner.load()`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from twinlog.settings.broker import BrokerSettings
from twinlog.settings.broker_conf import BrokerConf
from twinlog.settings.store import StoreSettings
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.errors import PluginError
from twinlog.store.message_store import MessageStore
from twinlog.store.writable_store import Listener


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a plug-in may ask of its broker. Any other attribute is looked up in the store's settings."""

    conf: Callable[[], BrokerConf]  # the current one: a request may change it while the broker runs
    stats: Any = None  # the broker's counts of messages, see broker/stats/stats.py; None outside of a broker
    _arrival: list[Listener] = field(default_factory=list)

    @property
    def store_settings(self) -> StoreSettings:
        return self.conf().store

    @property
    def broker_settings(self) -> BrokerSettings:
        return self.conf().broker

    def arrived(self, batch: Sequence[DispatchRequest]) -> None:
        """Report that these records can now be read: pulls that wait for them are answered."""
        for listener in self._arrival:
            listener(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.conf().store, name)


class StoreWrapper:
    """Passes every call on to the store inside."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(
    settings: StoreSettings, *, conf: Callable[[], BrokerConf] | None = None, stats: Any = None, **options: Any
) -> Any:
    """Open the store in `settings.root_dir` with the plug-ins that its settings name around it.

    Names are resolved before anything is opened, so a misspelt one changes nothing on disk.
    """
    factories = [(name, load_factory(name)) for name in plugin_names(settings.plugins)]

    def wrap(store: MessageStore) -> Any:
        context = PluginContext(conf or (lambda: BrokerConf(store=settings)), stats, store.on_arrival)
        outer: Any = store
        for name, factory in reversed(factories):
            outer = factory(outer, context)
            if outer is None:
                raise PluginError(name, "the factory returned None instead of a store")
        return outer

    return MessageStore.open_wrapped(settings, wrap, **options)


def plugin_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def load_factory(name: str) -> Any:
    """The callable that `module:factory` names."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise PluginError(name, "is not of the form module:factory")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise PluginError(name, f"module {module_name} cannot be imported ({error})") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise PluginError(name, f"module {module_name} has no callable {attribute}")
    return factory
