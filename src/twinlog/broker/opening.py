"""What a broker opens before anything runs: its metadata tables and its store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.broker.pulls.filters.bitmap_dispatcher import BitmapDispatcher
from twinlog.broker.pulls.filters.bloom import BloomFilter
from twinlog.broker.pulls.filters.consumer_filters import ConsumerFilters
from twinlog.broker.topics.topic_creation import seed_tables
from twinlog.metadata.errors import NotSaved
from twinlog.metadata.tables import MetadataTables, open_tables
from twinlog.security.account_file import first_accounts, open_account_file
from twinlog.store.errors import RecoveryStopped, StoreUnusable, system_errors_as
from twinlog.store.plugins import open_store
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.broker.stats.stats import BrokerStats
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.store.message_store import MessageStore

log = get_logger(__name__)


def load_tables(conf: BrokerConf, now_ms: int) -> MetadataTables:
    """The tables as their files have them, with the topics and groups that every broker has."""
    settings, root, access = conf.broker, conf.store.root_dir, conf.access
    tables = open_tables(
        os.path.join(root, "config"),
        now_ms,
        offset_version_step=settings.offset_version_step,
        delay_version_step=settings.delay_offset_version_step,
        modes=conf.store.modes,
        accounts_file=open_account_file(access, os.path.join(root, "config")) if access.authentication else None,
    )
    if access.authentication:
        for account in first_accounts(access, settings.own_account):
            tables.accounts.seed(account.username, account)
    seed_tables(tables.topics, tables.groups, settings, conf.store)
    with system_errors_as(StoreUnusable, Path(root)):
        for problem in tables.load():
            log.warning(problem)
        tables.accounts.save()  # what was seeded: an administrator that is lost in a crash could not come in
    tables.offsets.follows_master = settings.is_replica
    return tables


def open_filters(conf: BrokerConf, tables: MetadataTables, now_ms: int) -> ConsumerFilters:
    """The filters of consumer groups, compiled."""
    bloom = BloomFilter(conf.broker.filter_error_percent, conf.broker.filter_groups_expected)
    return ConsumerFilters(tables.filters, bloom, now_ms)


@contextlib.contextmanager
def saved_at_end(tables: MetadataTables, store: MessageStore) -> Iterator[None]:
    """Write the tables' files at the end of the block, after the log: progress on disk must not be ahead of it."""
    try:
        yield
    finally:
        try:
            store.flush()  # FlushFailed ends the broker, and nothing is saved
            tables.save()
        except OSError as error:
            raise NotSaved(error) from error


async def open_in_thread(open_store: Callable[[Callable[[], bool]], MessageStore]) -> MessageStore:
    """The store that `open_store` opens in a thread: recovery may take minutes, and a signal must be able to end it.

    Once the function that `open_store` is given returns true, it must stop with RecoveryStopped.
    """
    stopping = threading.Event()
    opening = asyncio.ensure_future(asyncio.to_thread(open_store, stopping.is_set))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        stopping.set()
        with contextlib.suppress(RecoveryStopped):
            (await opening).close()
        raise


def open_broker_store(
    conf: Callable[[], BrokerConf],
    tables: MetadataTables,
    filters: ConsumerFilters,
    *,
    wall_ms: Callable[[], int],
    stats: BrokerStats,
    stopped: Callable[[], bool],
    disk_ratio: Callable[[], float] | None = None,
) -> MessageStore:
    """The recovered store, with its plug-ins around it; those read `conf` again while the broker runs."""

    def topic_kind(topic: str) -> str:
        config = tables.topics.get(topic)
        return config.attributes.get("queue.type", "SimpleCQ") if config is not None else "SimpleCQ"

    now = conf()
    store: MessageStore = open_store(
        now.store,
        role=now.broker.broker_role,
        store_host=now.broker.record_host,
        clock_ms=wall_ms,
        topic_kind=topic_kind,
        early_dispatchers=[BitmapDispatcher(filters)] if now.broker.filter_bitmap else [],
        stopped=stopped,
        disk_ratio=disk_ratio,
        conf=conf,
        stats=stats,
    )
    log.info("store open", directory=now.store.root_dir, log_start=store.log_start, log_end=store.log_end)
    return store
