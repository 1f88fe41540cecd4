"""A network of the test's own: a namespace per process, all connected by a router on which any way can be blocked.

    network namespace    address        router
    a                    10.199.1.2 --- 10.199.1.1
    b                    10.199.2.2 --- 10.199.2.1
    (the test itself)    10.199.9.2 --- 10.199.9.1

`block("a", "b")` drops every packet that a sends to b, silently, as a broken switch does; packets from b to a still
arrive. `limit("a", "1mbit")` makes the link to a slow. Root only; a machine that cannot do this skips with one line.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence

import pytest
from tests.faults.group import Place
from tests.faults.machine import need, run

TEST = "test"


class Network:
    def __init__(self, tag: str, names: Sequence[str]) -> None:
        self._tag, self._names = tag, [*names, TEST]
        self._router = f"{tag}-router"
        # Several tests may run at the same time, each with a subnet of its own.
        self._subnet = f"10.{100 + os.getpid() % 100}"

    @classmethod
    @contextlib.contextmanager
    def of(cls, *names: str) -> Iterator[Network]:
        need("ip", "tc")
        network = cls(f"tw{uuid.uuid4().hex[:6]}", names)
        try:
            network._build()
        except OSError as error:
            network._remove()
            pytest.skip(f"no network namespaces can be made here: {error}")
        try:
            yield network
        finally:
            network._remove()

    def place(self, name: str) -> Place:
        return Place(("ip", "netns", "exec", f"{self._tag}-{name}"), self.address(name))

    def places(self) -> dict[str, Place]:
        return {name: self.place(name) for name in self._names if name != TEST}

    def address(self, name: str) -> str:
        return f"{self._subnet}.{self._names.index(name) + 1}.2"

    def block(self, sender: str, receiver: str) -> None:
        self._rule("add", sender, receiver)

    def unblock(self, sender: str, receiver: str) -> None:
        self._rule("del", sender, receiver)

    @contextlib.contextmanager
    def blocked(self, ways: Sequence[tuple[str, str]]) -> Iterator[None]:
        for way in ways:
            self.block(*way)
        try:
            yield
        finally:
            for way in ways:
                self.unblock(*way)

    def both_ways(self, name: str, others: Sequence[str] | None = None) -> list[tuple[str, str]]:
        """All ways between `name` and the others (default: everybody)."""
        others = [other for other in (others or self._names) if other != name]
        return [(name, other) for other in others] + [(other, name) for other in others]

    def limit(self, name: str, rate: str) -> None:
        """Bytes to `name` pass at this rate."""
        link = f"{self._tag}{self._names.index(name)}r"
        self._in_router("tc", "qdisc", "replace", "dev", link, "root", "tbf", "rate", rate, "burst", "16kb", *LATENCY)

    def _rule(self, verb: str, sender: str, receiver: str) -> None:
        ends = ("from", self.address(sender), "to", self.address(receiver))
        self._in_router("ip", "rule", verb, *ends, "blackhole", "prio", "100")

    def _in_router(self, *command: str) -> None:
        run("ip", "netns", "exec", self._router, *command)

    def _build(self) -> None:
        run("ip", "netns", "add", self._router)
        self._in_router("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        for number, name in enumerate(self._names):
            near, far = f"{self._tag}{number}n", f"{self._tag}{number}r"
            run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", self._router)
            self._in_router("ip", "addr", "add", f"{self._subnet}.{number + 1}.1/24", "dev", far)
            self._in_router("ip", "link", "set", far, "up")
            inside: tuple[str, ...] = ()
            if name != TEST:
                run("ip", "netns", "add", f"{self._tag}-{name}")
                run("ip", "link", "set", near, "netns", f"{self._tag}-{name}")
                inside = ("ip", "netns", "exec", f"{self._tag}-{name}")
                run(*inside, "ip", "link", "set", "lo", "up")
            run(*inside, "ip", "addr", "add", f"{self._subnet}.{number + 1}.2/24", "dev", near)
            run(*inside, "ip", "link", "set", near, "up")
            run(*inside, "ip", "route", "add", f"{self._subnet}.0.0/16", "via", f"{self._subnet}.{number + 1}.1")

    def _remove(self) -> None:
        for name in self._names:
            with contextlib.suppress(OSError):
                run("ip", "netns", "del", f"{self._tag}-{name}")
        with contextlib.suppress(OSError):  # takes the link to the test with it
            run("ip", "netns", "del", self._router)


LATENCY = ("latency", "500ms")
