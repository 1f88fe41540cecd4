"""Messages that are missing from a read: an error or a warning, by failOnDataLoss."""

from __future__ import annotations

from collections.abc import Callable

from twinlog.spark.errors import DataLoss
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
OnLoss = Callable[[str, str], None]  # (where, what)


def report_loss(fails: bool, place: str, what: str) -> None:
    """Raise DataLoss if `fails`, else log a warning."""
    if fails:
        raise DataLoss(place, what)
    log.warning("messages are lost and are left out", where=place, what=what)
