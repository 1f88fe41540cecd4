"""What the values of options mean; a wrong one ends the command before Spark starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from twinlog.cli.shared.running import fail

if TYPE_CHECKING:
    from twinlog.cli.shared.connecting import Access
    from twinlog.client import Credentials
    from twinlog.spark.cluster_options import ClusterOptions


def cluster_options(name_servers: str | None, access: Access) -> ClusterOptions:
    """How brokers are reached; without keys the account is that of ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY."""
    from twinlog.client import ClientError
    from twinlog.client.routing.name_servers import parse_name_servers
    from twinlog.spark.cluster_options import ClusterOptions

    try:
        names = tuple(parse_name_servers(name_servers)) if name_servers else ()
    except ClientError as problem:
        fail(problem)
    return ClusterOptions(
        name_servers=names,
        credentials=_credentials(access),
        tls=access.wants_tls,
        tls_ca_file=access.tls_ca,
        tls_cert_file=access.tls_cert,
        tls_key_file=access.tls_key,
        tls_verify=not access.tls_insecure,
    )


def source_options(given: Iterable[str] | None, access: Access) -> dict[str, str]:
    """The options of a data source; its account is from the environment when the command line has none."""
    found = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            fail(f"--option {text!r} is not KEY=VALUE, for example readFrom=slave")
        found[key.strip()] = value.strip()
    account = _credentials(access)
    keys = {} if account is None else {"accessKey": account.access_key, "secretKey": account.secret_key}
    return {**keys, **_tls_options(access), **found}


def _tls_options(access: Access) -> dict[str, str]:
    """TLS as the data sources name it."""
    if not access.wants_tls:
        return {}
    files = {"caFile": access.tls_ca, "certFile": access.tls_cert, "keyFile": access.tls_key}
    named = {f"rocketmq.tls.{name}": path for name, path in files.items() if path}
    return {
        "rocketmq.useTLS": "true",
        **named,
        **({"rocketmq.tls.verify": "false"} if access.tls_insecure else {}),
    }


def catalog_options(given: Iterable[str] | None) -> dict[str, str]:
    """The options of a catalog: KEY=VALUE, with commas or repeated."""
    found = {}
    for text in (part.strip() for one in given or () for part in one.split(",")):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            fail(f"--catalog {text!r} is not KEY=VALUE, for example type=rest,uri=http://127.0.0.1:8181")
        found[key.strip()] = value.strip()
    return found


def _credentials(access: Access) -> Credentials | None:
    from twinlog.cli.shared.connecting import find_credentials
    from twinlog.client import ClientError

    try:
        return find_credentials(access.access_key, access.secret_key)
    except ClientError as problem:
        fail(problem)


def names(texts: Iterable[str] | None) -> tuple[str, ...]:
    """The names in an option that may be repeated, or given once with commas."""
    return tuple(part.strip() for text in texts or () for part in text.split(",") if part.strip())


def check_table(to: str | None) -> None:
    """End the command if `to` cannot be the place of a table; Spark would notice only after all the work."""
    from twinlog.spark.errors import BadOption
    from twinlog.spark.paths import table_location

    try:
        if to is not None:
            table_location(to, "--to")
    except BadOption as problem:
        fail(problem)


def size_bytes(text: str, option: str) -> int:
    """`0`, `64m` or `1g` as bytes."""
    from twinlog.spark.errors import BadOption
    from twinlog.spark.option_values import OptionValues

    try:
        return OptionValues({option: text}, known=(option,)).size(option, low=0) or 0
    except BadOption as problem:
        fail(problem)


def seconds(text: str, option: str) -> float:
    """`90`, `90s`, `10m`, `2h` or `1d` as seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        value = float(number) * units[unit]
    except ValueError:
        value = -1
    if not 0 < value < float("inf"):
        fail(f"{option} {text!r} is not a time: write a number with s, m, h or d behind it, for example 10m")
    return value


def moment_ms(text: str | None, option: str) -> int | None:
    """Milliseconds since 1970; a time without a zone is one of UTC."""
    from twinlog.spark.errors import BadOption
    from twinlog.spark.option_values import parse_moment_ms

    try:
        return None if text is None else parse_moment_ms(text, option)
    except BadOption as problem:
        fail(problem)
