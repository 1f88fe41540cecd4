"""A broker as its failover service sees it: role, log, epochs, acknowledgements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.base.addresses import java_address_text
from twinlog.base.atomic_file import replace_file
from twinlog.base.safe_files import read_file
from twinlog.broker.replication.noted_tails import forget_tail, load_tails
from twinlog.broker.replication.tail_cut import RestartToCut, begin_cut
from twinlog.failover.host import OwnLog
from twinlog.failover.records import Tail
from twinlog.replication.master_epoch import MasterEpochs
from twinlog.wire.numbers import is_natural

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.replication.replication_service import ReplicationService
    from twinlog.failover.ack_rule import AckRule

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SEEN_BOOT = Path("config", "twinlogBoot")  # where the log was whole last: in which start of the machine, or _STOPPED
_STOPPED = "stopped "  # and the end of the log, all on disk: a log that reaches there at the next start has all


class FailoverHost:
    """See `failover/host.py` for what each of these means."""

    def __init__(self, ctx: BrokerContext, replication: ReplicationService) -> None:
        self._ctx = ctx
        self._replication = replication
        self.broker_id = ctx.settings.broker_id
        self.member = replication.instance
        self.address = ctx.settings.address
        self.ha_address = java_address_text(ctx.settings.broker_ip2, ctx.conf.replication.listen_port)
        self._boot = _boot_id()
        self._cut_at: int | None = None  # the next start cuts the log here
        self._tails = load_tails(Path(ctx.conf.store.root_dir))
        self._whole = self.kept_its_log = self._is_whole()

    @property
    def is_master(self) -> bool:
        return self._ctx.is_master

    @property
    def is_unfinished(self) -> bool:
        return self._replication.role_change.is_unfinished

    @property
    def is_following(self) -> bool:
        return self._replication.replica.status.is_following

    @property
    def epochs(self) -> MasterEpochs:
        return self._replication.epochs.now

    def log(self) -> OwnLog:
        store = self._ctx.store
        if not self._whole and self._has_all_again():
            self._note_whole()
        end = store.log_end if self.is_master else store.whole_end
        return OwnLog(store.log_start, end, self._whole)

    def replica_ends(self) -> Mapping[str, int]:
        return self._replication.master.acks.ends()

    def lease(self, until_ms: int) -> None:
        self._ctx.guard.lease(until_ms)

    def see_epoch(self, epoch: int) -> None:
        self._replication.epochs.saw(epoch)

    def follow(self, address: str, ha_address: str) -> None:
        self._ctx.master_address, self._ctx.master_ha_address = address, ha_address
        self._replication.following.use_known_master()

    def join_now(self) -> None:
        self._replication.replica.join_now()

    def pause_sends(self, why: str | None) -> None:
        self._ctx.guard.pause(why)

    def acknowledge_by(self, rule: AckRule) -> None:
        demand = self._replication.send_demand
        demand.rule = rule
        if self.is_master:
            demand.acknowledged()

    async def promote(self, role: str, epoch: int) -> None:
        await self._replication.role_change.promote(role, epoch)

    async def step_down(self) -> None:
        await self._replication.role_change.step_down(self.broker_id)
        self._replication.send_demand.rule = None

    def tails(self) -> Sequence[tuple[Tail, int]]:
        return [
            (
                Tail(
                    member=self.member,
                    address=self.address,
                    begin=one.begin,
                    end=one.end,
                    messages=one.messages,
                    file=one.file,
                    at_ms=one.at_ms,
                ),
                one.master_epoch,
            )
            for one in self._tails
        ]

    def forget_tail(self, tail: Tail) -> None:
        store = self._ctx.conf.store
        forget_tail(Path(store.root_dir), tail.file, store.modes)
        self._tails = load_tails(Path(store.root_dir))

    async def cut_divergence(self, master_address: str, epoch: int) -> None:
        found = self._replication.replica.divergence
        if found is None or (found.master_address, found.master_epoch) != (master_address, epoch):
            return
        intent = begin_cut(self._ctx.store, found.cut_at, master_address, epoch, self._ctx.wall_ms())
        self._cut_at = intent.cut_at
        raise RestartToCut(intent)

    def stopped(self) -> None:
        """Call at the end, when all of the log is on disk."""
        if self._whole and self._boot is not None:
            end = self.log().end
            self._write_boot(f"{_STOPPED}{end if self._cut_at is None else min(end, self._cut_at)}")

    # -- a machine that was restarted ----------------------------------------------------------

    def _is_whole(self) -> bool:
        """Whether the log has everything that was reported; a machine that stopped loses what was not flushed.

        A log in doubt stays so through any number of clean stops, until it has caught up.
        """
        seen = self._seen_boot()
        if self._boot is None or seen is None or seen == self._boot or self._has_what_was_there(seen):
            self._note_whole()
            return True
        return False

    def _has_what_was_there(self, seen: str) -> bool:
        """Whether it was stopped with all on disk, and the log, perhaps on a disk of its own, is still there."""
        end = seen.removeprefix(_STOPPED)
        return end != seen and is_natural(end) and self._ctx.store.log_end >= int(end)

    def _has_all_again(self) -> bool:
        status = self._replication.replica.status
        return status.is_following and status.master_end is not None and self._ctx.store.whole_end >= status.master_end

    def _note_whole(self) -> None:
        if self._boot is not None and self._seen_boot() != self._boot:
            self._write_boot(self._boot)
        self._whole = True

    def _write_boot(self, text: str) -> None:
        store = self._ctx.conf.store
        replace_file(Path(store.root_dir) / _SEEN_BOOT, [text.encode(), b"\n"], store.modes)

    def _seen_boot(self) -> str | None:
        try:
            return read_file(Path(self._ctx.conf.store.root_dir) / _SEEN_BOOT).decode().strip()
        except FileNotFoundError:
            return None


def _boot_id() -> str | None:
    """Differs after every start of the machine; None where the system does not show one."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None
