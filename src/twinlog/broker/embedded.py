"""A name server and a broker in a thread of this process, for tests and notebooks.

with EmbeddedBroker() as broker:
    ...  # clients connect to broker.namesrv_address
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from twinlog.base.system_calls import new_event_loop
from twinlog.broker.dev_service import DevService

START_S_MAX = 30.0
SMALL_FILES = {"mappedFileSizeCommitLog": str(16 * 1024 * 1024), "maxHashSlotNum": "5000", "maxIndexNum": "20000"}


def empty_disk() -> float:
    """How full the disk is for a broker of a test: what others have on the machine's disk must not stop its sends."""
    return 0.0


class EmbeddedBroker:
    """Starts on entering, or by `start`; `settings` are broker.conf keys. Without a directory, files are temporary."""

    def __init__(self, directory: str | Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._given_directory = directory
        self._settings = {**SMALL_FILES, **(settings or {})}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._service: DevService | None = None

    @property
    def namesrv_address(self) -> str:
        """host:port of the name server."""
        assert self._service is not None, "start it first"
        return self._service.namesrv_address

    @property
    def broker_address(self) -> str:
        """host:port of the broker."""
        assert self._service is not None, "start it first"
        return self._service.broker_address

    def start(self) -> Self:
        """Return once the broker is registered and serves; raises the error that stopped its start."""
        directory = self._given_directory
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="twinlog-")
            directory = self._temporary.name
        self._service = DevService(
            Path(directory), settings=self._settings, disk_ratio=empty_disk, on_ready=lambda _: self._ready.set()
        )
        self._thread = threading.Thread(target=self._run, name="twinlog", daemon=True)
        self._thread.start()
        in_time = self._ready.wait(START_S_MAX)
        if self._error is not None or not in_time:
            error = self._error or TimeoutError(f"the broker was not ready within {START_S_MAX} s")
            self.stop()
            raise error
        return self

    def stop(self) -> None:
        """Stop and close everything; safe to call twice."""
        if self._thread is not None and self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()
        self._thread = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        async def serve() -> None:
            assert self._service is not None
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            with contextlib.suppress(asyncio.CancelledError):
                await self._service.run()

        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(serve())
        except BaseException as error:  # handed to the thread that waits in `start`
            self._error = error
        finally:
            self._ready.set()
