"""Functions of the user that are called around every send or listener call.

    @contextlib.contextmanager
    def timed(call: Sending):  # or Consuming
        started = time.monotonic()
        yield
        print(call.group, time.monotonic() - started, call.error)

A hook gets a description of the call and returns a context manager. The call happens inside it; its outcome stands in
the description afterwards. A hook that raises is logged, and the call goes on without it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
C = TypeVar("C")
Hook = Callable[[C], AbstractContextManager[object]]


@contextmanager
def entered(hooks: Sequence[Hook[C]], call: C) -> Iterator[None]:
    """Enter all hooks in their order, and leave them in the reverse one."""
    inside: list[AbstractContextManager[object]] = []
    for hook in hooks:
        try:
            manager = hook(call)
            manager.__enter__()
        except Exception as error:  # the user's code: sends and messages do not depend on it
            log.error("a hook failed", hook=_name(hook), exc_info=error)
        else:
            inside.append(manager)
    try:
        yield
    finally:
        for manager in reversed(inside):
            try:
                manager.__exit__(None, None, None)
            except Exception as error:
                log.error("a hook failed at its end", exc_info=error)


def _name(hook: object) -> str:
    return getattr(hook, "__qualname__", type(hook).__qualname__)
