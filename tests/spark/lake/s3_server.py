"""A real S3 server in a process of its own, on loopback, and buckets of it."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field

from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.s3_lake import S3Lake, s3_client
from twinlog.spark.lake.s3_settings import s3_settings

KEYS = {"fs.s3a.access.key": "tester", "fs.s3a.secret.key": "secret"}


@dataclass
class S3Server:
    """`settings` are those of S3A for it."""

    endpoint: str
    _numbers: itertools.count = field(default_factory=itertools.count)

    @property
    def settings(self) -> dict[str, str]:
        more = {"fs.s3a.endpoint": self.endpoint, "fs.s3a.path.style.access": "true"}
        return {**KEYS, **more, "fs.s3a.attempts.maximum": "3", "fs.s3a.connection.timeout": "10s"}

    @property
    def conf(self) -> dict[str, str]:
        """The same as settings of Spark."""
        return {f"spark.hadoop.{name}": value for name, value in self.settings.items()}

    def client(self):
        return s3_client(s3_settings(self.settings.get, "any", {}))

    def new_bucket(self) -> str:
        name = f"bucket-{next(self._numbers)}"
        self.client().create_bucket(Bucket=name)
        return name

    def lake(self, path: str = "", bucket: str | None = None, **settings: str) -> S3Lake:
        """A lake in a bucket of its own, or in the given one."""
        bucket = bucket or self.new_bucket()
        given = {**self.settings, **settings}
        return S3Lake(parse_address(f"s3a://{bucket}/{path}", "test"), s3_settings(given.get, bucket, {}))


@contextmanager
def s3_server():
    """Starts moto's server; it keeps everything in memory, and honours conditional puts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        limit = time.monotonic() + 60
        while True:
            assert process.poll() is None, "moto's server has ended"
            assert time.monotonic() < limit, "moto's server does not answer"
            try:
                urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        yield S3Server(endpoint)
    finally:
        process.kill()
        process.wait()
