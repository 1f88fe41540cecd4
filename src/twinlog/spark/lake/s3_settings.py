"""How a bucket is reached, from the settings of Hadoop's S3A; pure.

    fs.s3a.access.key, .secret.key, .session.token     keys; without them the provider below, or AWS's usual chain:
                                                       environment, profile, web identity, role of the machine
    fs.s3a.aws.credentials.provider                    Anonymous..., or one that AWS's chain includes
    fs.s3a.endpoint, .endpoint.region                  another server than AWS, its region
    fs.s3a.path.style.access                           true for most servers that are not AWS
    fs.s3a.connection.ssl.enabled                      false: http, if the endpoint has no scheme
    fs.s3a.attempts.maximum, .connection.timeout, .connection.establish.timeout
    fs.s3a.bucket.NAME.<any of these>                  for one bucket, overrides the others

In the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE, AWS_REGION,
AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twinlog.spark.errors import BadOption

GetSetting = Callable[[str], str | None]
PREFIX = "fs.s3a."
SECRETS = ("access.key", "secret.key", "session.token")
NAMES = (
    *SECRETS,
    "aws.credentials.provider",
    "endpoint",
    "endpoint.region",
    "path.style.access",
    "connection.ssl.enabled",
    "attempts.maximum",
    "connection.timeout",
    "connection.establish.timeout",
)
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
# Providers that only use the keys of the settings, and those that AWS's own chain tries.
_BY_KEYS = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
_BY_CHAIN = (
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "EnvironmentVariableCredentialsProvider",
    "ProfileCredentialsProvider",
    "ProfileAWSCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "WebIdentityTokenCredentialsProvider",
)
_UNITS_S = {"": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = re.compile(r"(\d+)\s*(ms|s|m|h)?")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Picklable, and the key of a cached client; secrets are not in its text."""

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    anonymous: bool = False
    endpoint: str | None = None  # with its scheme; None for AWS
    region: str | None = None
    path_style: bool = False
    attempts_max: int = 5
    connect_s: float = 30.0
    read_s: float = 60.0


def s3_settings(get: GetSetting, bucket: str, environment: Mapping[str, str] = os.environ) -> S3Settings:
    """The settings for one bucket; `get` returns a setting of Hadoop by its whole name."""

    def setting(name: str) -> str | None:
        for key in (f"{PREFIX}bucket.{bucket}.{name}", f"{PREFIX}{name}"):
            value = (get(key) or "").strip()
            if value:
                return value
        return None

    access, secret = setting("access.key"), setting("secret.key")
    if bool(access) != bool(secret):
        lacks = "secret.key" if access else "access.key"
        raise BadOption(f"s3a://{bucket}: {PREFIX}{lacks} is missing; give both keys, or none to use the environment")
    providers = [one.strip() for one in (setting("aws.credentials.provider") or "").split(",") if one.strip()]
    names = [one.replace("$", ".").rpartition(".")[2] for one in providers]
    if not access:
        _check_providers(bucket, providers, names)
    endpoint = setting("endpoint") or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint and "://" not in endpoint:
        endpoint = f"{'http' if _is_false(setting('connection.ssl.enabled')) else 'https'}://{endpoint}"
    return S3Settings(
        access,
        secret,
        setting("session.token") if access else None,
        anonymous=not access and names == [_ANONYMOUS],
        endpoint=endpoint or None,
        region=setting("endpoint.region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"),
        path_style=(setting("path.style.access") or "").lower() == "true",
        attempts_max=_number(setting("attempts.maximum"), "attempts.maximum", 5),
        connect_s=_seconds(setting("connection.establish.timeout"), "connection.establish.timeout", 30.0),
        read_s=_seconds(setting("connection.timeout"), "connection.timeout", 60.0),
    )


def _check_providers(bucket: str, providers: list[str], names: list[str]) -> None:
    """BadOption for a way to get keys that only Java knows; another account's keys would be used silently."""
    known = {_ANONYMOUS, *_BY_KEYS, *_BY_CHAIN}
    unknown = [one for one, name in zip(providers, names, strict=True) if name not in known]
    if unknown and len(unknown) == len(providers):
        hint = "give keys, or leave the setting out and use AWS_PROFILE, whose profile may assume a role"
        raise BadOption(f"s3a://{bucket}: {PREFIX}aws.credentials.provider {unknown[0]} is a class of Java; {hint}")


def _is_false(text: str | None) -> bool:
    return (text or "").lower() == "false"


def _number(text: str | None, name: str, default: int) -> int:
    if text is None:
        return default
    if not text.isdigit() or not int(text):
        raise BadOption(f"{PREFIX}{name} {text!r} is not a number from 1: write for example 5")
    return int(text)


def _seconds(text: str | None, name: str, default: float) -> float:
    """Hadoop's times: a bare number counts milliseconds."""
    if text is None:
        return default
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        raise BadOption(f"{PREFIX}{name} {text!r} is not a time: write for example 30s")
    return max(int(found[1]) * _UNITS_S[found[2] or ""], 0.001) or default
