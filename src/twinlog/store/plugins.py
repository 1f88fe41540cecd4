"""Wrappers around the store, named by `messageStorePlugIn`.

The setting lists `module:factory` names, separated by commas. Each factory is called with the store made so
far and the store settings, and returns what the broker shall use in its place; the last name listed is the
outermost. A wrapper most easily derives from `StoreWrapper`, which passes everything on that it does not define:

    class Counting(StoreWrapper):
        def append(self, draft):
            self.count += 1
            return self.inner.append(draft)

    def factory(store, settings):
        return Counting(store)
"""

from __future__ import annotations

import importlib
from types import TracebackType
from typing import Any, Self

from twinlog.settings.store import StoreSettings
from twinlog.store.errors import PluginError
from twinlog.store.message_store import MessageStore


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


def open_store(settings: StoreSettings, **options: Any) -> Any:
    """Open the store in `settings.root_dir` with the wrappers its settings name around it.

    Names are resolved before anything is opened, so a misspelt one changes nothing on disk.
    """
    factories = [(name, load_factory(name)) for name in plugin_names(settings.plugins)]
    store: Any = MessageStore.open(settings, **options)
    for name, factory in factories:
        try:
            wrapped = factory(store, settings)
        except BaseException:
            store.close()
            raise
        if wrapped is None:
            store.close()
            raise PluginError(name, "the factory returned None instead of a store")
        store = wrapped
    return store


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
