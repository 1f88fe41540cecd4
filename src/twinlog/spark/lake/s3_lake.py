"""A bucket of S3, or of a server that speaks its protocol.

Small files go through boto3, whose conditional put decides between writers; the bytes of tables through pyarrow, which
sends and reads them in parts. Keys are resolved by boto3 for both, so that both find the same ones.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from twinlog.spark.errors import BadOption
from twinlog.spark.lake.address import Address
from twinlog.spark.lake.errors import LakeError, NotThere, one_line
from twinlog.spark.lake.lake import AT_ONCE, Entry, check_name
from twinlog.spark.lake.s3_settings import S3Settings

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_DELETES_AT_ONCE = 1000  # S3's limit for one request
_COPY_BYTES_MAX = 5 << 30  # of one request; larger files are copied in parts
_BUSY_PAUSE_S = 0.2  # between two tries of a conditional put that met another one
_BUSY_TRIES = 10
_EXISTS, _BUSY = ("PreconditionFailed", "412"), ("ConditionalRequestConflict", "409")
_GONE = ("NoSuchKey", "404", "NotFound")
_HINTS = {
    "AccessDenied": "check the policy of the bucket and the account's permissions (read, write, list, delete)",
    "403": "check the keys and the policy of the bucket",
    "InvalidAccessKeyId": "check fs.s3a.access.key or AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "check fs.s3a.secret.key or AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the credentials have expired; give fresh ones and run again: what was committed stays",
    "ExpiredTokenException": "the credentials have expired; give fresh ones and run again: what was committed stays",
    "InvalidToken": "check fs.s3a.session.token or AWS_SESSION_TOKEN",
    "NoSuchBucket": "create the bucket, or correct its name",
    "RequestTimeTooSkewed": "the clocks of this machine and of the store differ by more than the store allows; "
    "set this machine's clock (NTP) and run again",
    "PermanentRedirect": "set fs.s3a.endpoint.region to the region of the bucket",
    "AuthorizationHeaderMalformed": "set fs.s3a.endpoint.region to the region of the bucket",
    "SlowDown": "the store limits the rate of requests; run again later, what was committed stays",
}


@dataclass(frozen=True, slots=True)
class S3Lake:
    """Names are keys below the path of the root."""

    root: Address
    settings: S3Settings

    @property
    def in_tasks(self) -> bool:
        return True

    def read(self, name: str) -> bytes | None:
        with self._errors(name, "read"):
            try:
                return self._client.get_object(**self._at(name))["Body"].read()
            except self._client.exceptions.NoSuchKey:
                return None

    def write(self, name: str, data: bytes) -> None:
        with self._errors(name, "written"):
            self._client.put_object(**self._at(name), Body=data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        from botocore.exceptions import ClientError

        for left in reversed(range(_BUSY_TRIES)):
            try:
                with self._errors(name, "written"):
                    self._client.put_object(**self._at(name), Body=data, IfNoneMatch="*")
                return True
            except LakeError as problem:
                code = _code(problem.__cause__) if isinstance(problem.__cause__, ClientError) else ""
                if code in _EXISTS:
                    # An answer may have been lost, and boto3 tried again: then the file that is there is ours.
                    return self.read(name) == data
                if code not in _BUSY or not left:
                    raise
                time.sleep(_BUSY_PAUSE_S)
        raise AssertionError("unreachable")

    def list(self, prefix: str = "", count_max: int | None = None) -> list[Entry]:
        base = self._key("")
        found: list[Entry] = []
        with self._errors(prefix, "listed"):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=base + prefix)
            for page in pages:
                keys = [Entry(one["Key"][len(base) :], one["Size"]) for one in page.get("Contents", ())]
                found += [entry for entry in keys if entry.name and not entry.name.endswith("/")]
                if count_max is not None and len(found) >= count_max:
                    break
        return sorted(found)[:count_max]

    def delete(self, names: Iterable[str]) -> None:
        keys = [self._key(check_name(name)) for name in names]
        for at in range(0, len(keys), _DELETES_AT_ONCE):
            part = [{"Key": key} for key in keys[at : at + _DELETES_AT_ONCE]]
            with self._errors("", "cleaned"):
                done = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": part, "Quiet": True})
            for problem in done.get("Errors", ()):
                if problem.get("Code") not in _GONE:
                    place = f"{self.root.scheme}://{self._bucket}/{problem.get('Key')}"
                    raise LakeError(place, f"cannot be deleted ({problem.get('Code')})", _hint(problem.get("Code", "")))

    def move(self, old: str, new: str) -> None:
        """A copy inside the store, and a delete: until both are done, both names are there."""
        source = self._size(old)
        if source is None:
            if self._size(new) is None:
                raise NotThere(self.root / old)
            return
        try:
            with self._errors(new, "copied"):
                if source < _COPY_BYTES_MAX:
                    self._client.copy_object(**self._at(new), CopySource=self._at(old))
                else:
                    self._client.copy(self._at(old), self._bucket, self._key(new))
        except LakeError:
            if self._size(old) is None and self._size(new) is not None:
                return  # another run did the same meanwhile
            raise
        self.delete([old])

    def check_exclusive(self, name: str) -> None:
        from botocore.exceptions import ClientError

        data = self.read(name)
        if data is None:
            raise NotThere(self.root / name)
        with self._errors(name, "written"):
            try:
                self._client.put_object(**self._at(name), Body=data, IfNoneMatch="*")
            except ClientError as error:
                if _code(error) in (*_EXISTS, *_BUSY):
                    return
                raise
        hint = "use a server that has conditional puts (AWS, MinIO since 2024-11, Ceph since Squid), or HDFS"
        raise LakeError(self.root, "the store ignores If-None-Match, so two writers cannot be kept apart", hint)

    def table_file(self, name: str) -> tuple[FileSystem, str]:
        return _arrow_s3(self.settings, self._bucket), f"{self._bucket}/{self._key(check_name(name))}"

    def make_durable(self, name: str) -> None:
        """Nothing to do: what a store has confirmed is durable."""

    # -- parts -------------------------------------------------------------------------------------

    @property
    def _client(self) -> Any:
        return s3_client(self.settings)

    @property
    def _bucket(self) -> str:
        return self.root.authority

    def _key(self, name: str) -> str:
        return f"{self.root.path}/{name}".lstrip("/")

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._key(check_name(name))}

    def _size(self, name: str) -> int | None:
        from botocore.exceptions import ClientError

        with self._errors(name, "read"):
            try:
                return self._client.head_object(**self._at(name))["ContentLength"]
            except ClientError as error:
                if _code(error) in _GONE:
                    return None
                raise

    @contextlib.contextmanager
    def _errors(self, name: str, done: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        place = self.root / name
        try:
            yield
        except ClientError as error:
            code = _code(error)
            text = error.response.get("Error", {}).get("Message") or str(error)
            raise LakeError(place, f"cannot be {done} ({code}: {text})", _hint(code)) from error
        except (BotoCoreError, OSError) as error:  # no answer, no keys, a body that ends too early
            raise LakeError(place, f"cannot be {done} ({one_line(error)})", self._reach()) from error
        except ValueError as error:  # an endpoint that is not an address, or an answer that is not XML
            raise LakeError(place, f"cannot be {done} ({one_line(error)})", "check fs.s3a.endpoint") from error

    def _reach(self) -> str:
        where = self.settings.endpoint or "AWS"
        return f"check that {where} answers, and the keys; what was committed stays, run again"


@functools.lru_cache(maxsize=16)
def s3_client(settings: S3Settings) -> Any:
    """One client for each process and settings; it may be used by several threads."""
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(
        signature_version=UNSIGNED if settings.anonymous else None,
        connect_timeout=settings.connect_s,
        read_timeout=settings.read_s,
        retries={"total_max_attempts": settings.attempts_max, "mode": "standard"},
        s3={"addressing_style": "path" if settings.path_style else "auto"},
        # Servers that are not AWS often refuse the checksums that AWS's own clients have added since 2025.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=2 * AT_ONCE,
    )
    region = settings.region or ("us-east-1" if settings.endpoint else None)
    return _session(settings).client("s3", endpoint_url=settings.endpoint, region_name=region, config=config)


@functools.lru_cache(maxsize=16)
def _session(settings: S3Settings) -> Any:
    try:
        import boto3
    except ImportError as error:
        raise BadOption("s3a:// needs boto3: pip install 'twinlog[s3]'") from error
    return boto3.Session(
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        aws_session_token=settings.session_token,
    )


def _arrow_s3(settings: S3Settings, bucket: str) -> FileSystem:
    """The file system with the keys of this moment: those of a role are replaced while a job runs."""
    if settings.anonymous:
        return _arrow_client(settings, bucket, ())
    found = _session(settings).get_credentials()
    if found is None:
        raise LakeError(f"s3a://{bucket}", "no keys are given", "set fs.s3a.access.key and .secret.key, or AWS_...")
    keys = found.get_frozen_credentials()
    return _arrow_client(settings, bucket, (keys.access_key, keys.secret_key, keys.token))


@functools.lru_cache(maxsize=4)
def _arrow_client(settings: S3Settings, bucket: str, keys: tuple[str | None, ...]) -> FileSystem:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    given: dict[str, Any] = dict(zip(("access_key", "secret_key", "session_token"), keys, strict=False))
    if settings.endpoint:
        url = urlsplit(settings.endpoint)
        given |= {"scheme": url.scheme, "endpoint_override": url.netloc, "region": settings.region or "us-east-1"}
        named = bool(url.hostname) and not url.hostname.replace(".", "").isdigit() and url.hostname != "localhost"
        given["force_virtual_addressing"] = named and not settings.path_style
        # As above: the checksums that AWS's clients add are a body that many servers refuse.
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        os.environ.setdefault("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    else:
        given["region"] = settings.region or resolve_s3_region(bucket)
    return S3FileSystem(
        **given,
        anonymous=settings.anonymous,
        connect_timeout=settings.connect_s,
        request_timeout=settings.read_s,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=settings.attempts_max),
        allow_delayed_open=True,  # a small file is one request
    )


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _hint(code: str) -> str:
    return _HINTS.get(code, "what was committed stays, run again")
