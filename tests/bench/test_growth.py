"""The growth parts: their rows, their picture, and the names that both must share."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree

from bench.growth_plot import PANELS, draw_growth

from bench import growth


def rows_of(scenes: dict[str, dict]) -> dict[str, dict]:
    rows = growth.Rows()
    for scene, result in scenes.items():
        rows.add(scene, "twinlog", result)
    return {name: dataclasses.asdict(row) for name, row in rows.by_name.items()}


def test_a_result_becomes_one_row_for_each_quantity():
    rows = rows_of({"10 consumers": {"per_second": 9.0, "cpu_us": 2.5, "count": 7}})
    assert {name: row["twinlog"] for name, row in rows.items()} == {
        "growth, 10 consumers: rate": [9.0],
        "growth, 10 consumers: CPU per message": [2.5],
    }
    assert [row["higher_is_better"] for row in rows.values()] == [True, False]


def test_the_picture_has_a_line_for_what_was_measured_and_none_for_the_rest():
    some = {"cpu_us": 4.0}
    rows = rows_of({"1 consumers": some, "64 consumers": some, "1,000 topics, 10 in use": some})
    drawn = xml.etree.ElementTree.fromstring(draw_growth(rows))
    points = [line.get("points") for line in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    assert sorted(len((one or "").split()) for one in points) == [1, 2]


def test_an_empty_bench_still_has_all_panels():
    drawn = draw_growth({})
    assert all(panel.title in drawn for panel in PANELS)


def test_the_picture_shows_the_sizes_that_are_measured():
    sizes = growth.Sizes()
    shown = {panel.across: tuple(panel.sizes) for panel in PANELS}
    assert shown["topics"] == tuple(sizes.topics)
    assert shown["connections"] == tuple(sizes.connections)
    assert shown["replicas"] == (0, *sizes.replicas)
    assert shown["consumers"] == tuple(sizes.consumers)
    assert shown["GiB"] == tuple(sizes.log_gib)
