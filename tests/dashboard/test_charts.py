"""Charts of bytes have lines at round numbers."""

import pytest

from twinlog.dashboard.widgets.charts import byte_step
from twinlog.observe.units import bytes_text


@pytest.mark.parametrize(
    ("highest", "text"), [(0, "1 B"), (3, "1 B"), (1_500, "512 B"), (11_000, "4.0 KiB"), (5 * 1024**2, "2.0 MiB")]
)
def test_a_chart_of_bytes_has_at_most_four_lines_at_powers_of_two(highest, text):
    step = byte_step(highest)
    assert bytes_text(step) == text
    assert step * 4 >= highest and (step == 1 or step * 2 < highest)
