"""The base of Producer, PushConsumer, PullConsumer and Admin: one session, and `async with`."""

from typing import Self

from twinlog.client.routing.session import Session


class BaseClient:
    """Owns one session from `start` to `close`; `async with` calls both."""

    session: Session

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to work; `async with` does it too."""
        await self.session.start()

    async def close(self) -> None:
        """End all tasks and connections."""
        await self.session.close()
