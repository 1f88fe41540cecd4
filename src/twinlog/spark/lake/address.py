"""An address of a directory or file on any file system.

/data/a   data/a   file:/data/a        local: driver and workers see it under the same name
s3a://bucket/a   s3://bucket/a         the same place: s3 is read as s3a, as services of AWS write it
hdfs://host:8020/a   abfs://container@account/a   gs://bucket/a   oss://bucket/a   dbfs:/a   any other of Hadoop's
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from twinlog.spark.errors import BadOption
from twinlog.spark.paths import is_file_address, local_path

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//?)([^/]*)(.*)", re.DOTALL)
_S3 = ("s3", "s3a", "s3n")
# Their first part is a bucket, container or host; without it the rest of the path would be taken for one.
_NEED_AUTHORITY = ("s3a", "gs", "oss", "abfs", "abfss", "wasb", "wasbs")


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """`scheme` is empty for a local path; `path` begins with a slash and does not end with one."""

    scheme: str
    authority: str  # a bucket, host:port, or container@account
    path: str

    @property
    def is_local(self) -> bool:
        return not self.scheme

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] or self.authority

    @property
    def parent(self) -> Address:
        return replace(self, path=self.path.rpartition("/")[0])

    @property
    def local(self) -> Path:
        assert self.is_local
        return Path(self.path or "/")

    def __truediv__(self, name: str) -> Address:
        return replace(self, path=f"{self.path}/{name}") if name else self

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}" if self.scheme else self.path or "/"


def parse_address(given: str | Path | Address, what: str) -> Address:
    """The address; BadOption, with the name of the option (`what`), for a text that is none."""
    if isinstance(given, Address):
        return given
    text = str(given)
    found = _ADDRESS.fullmatch(text)
    if found is None or is_file_address(text):
        return Address("", "", str(local_path(given, what)).rstrip("/"))
    scheme, slashes, authority, path = found[1].lower(), found[2], found[3], found[4]
    scheme = "s3a" if scheme in _S3 else scheme
    if slashes == "/":  # dbfs:/a, or s3a:/bucket/a, which is what a pathlib.Path makes of an address
        authority, path = "", f"/{authority}{path}"
    if scheme in _NEED_AUTHORITY and not authority:
        hint = f"write {scheme}://BUCKET/PATH, as text and not as a pathlib.Path"
        raise BadOption(f"{what} {text!r}: the address names no bucket; {hint}")
    if scheme == "s3a" and ("@" in authority or ":" in authority):
        hint = "give keys as spark.hadoop.fs.s3a.access.key and .secret.key, or in the environment"
        raise BadOption(f"{what}: an address of S3 is s3a://BUCKET/PATH, without keys and ports; {hint}")
    parts = [part for part in path.split("/") if part]
    if "." in parts or ".." in parts:
        raise BadOption(f"{what} {text!r}: write the address without . and ..")
    return Address(scheme, authority, "".join(f"/{part}" for part in parts))


def is_lake(given: str | Path | Address, what: str) -> bool:
    """Whether this is not a local path."""
    return not parse_address(given, what).is_local
