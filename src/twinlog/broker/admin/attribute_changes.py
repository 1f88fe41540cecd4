"""Attributes in requests: changes in the form `+key=value,-key`, for topics and for groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from twinlog.metadata.attributes import Attribute, alter_attributes, parse_changes
from twinlog.metadata.errors import AttributeRejected
from twinlog.net.errors import RequestRefused
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig
from twinlog.wire.codes import ResponseCode

Config = TypeVar("Config", TopicConfig, SubscriptionGroupConfig)


def parsed_changes(text: str | None) -> dict[str, str]:
    try:
        return parse_changes(text)
    except AttributeRejected as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error


def with_attributes(wanted: Config, current: Config | None, known: Mapping[str, Attribute]) -> Config:
    """`wanted`, whose attributes are changes, with the attributes that `current` has after these changes."""
    try:
        before = current.attributes if current is not None else None
        attributes = alter_attributes(before, wanted.attributes, known)
    except AttributeRejected as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    return msgspec.structs.replace(wanted, attributes=attributes)
