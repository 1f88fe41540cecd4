import io

from tests.cli.terminals import in_terminal
from tests.store.store_at import fill, open_store

from twinlog.cli.shared import progress_bar
from twinlog.cli.shared.progress_bar import MIB, ProgressBar, bar_line


def test_a_bar_has_a_rate_and_the_time_left():
    assert bar_line(25 * MIB, 100 * MIB, 5.0) == f"[{'#' * 7}{'.' * 23}] 25 %  5.0 MiB/s  15 s left"
    assert bar_line(0, 100 * MIB, 0.0).endswith("0.0 MiB/s  starting")
    assert bar_line(7, 0, 1.0).startswith(f"[{'#' * 30}] 100 %")
    assert len(bar_line(1, 10**15, 10**6)) <= 80


def test_a_pipe_gets_nothing():
    out = io.StringIO()
    with ProgressBar(0, 100, out) as bar:
        bar.reached(50)
    assert out.getvalue() == ""


def test_verify_and_compare_show_a_bar_and_remove_it(tmp_path, monkeypatch):
    assert progress_bar._REDRAW_S < 1
    for name in ("a", "b"):
        with open_store(tmp_path / name) as store:
            fill(store, 100)
            root = store.root
    shown = in_terminal(["store", "verify", root])
    assert shown.status == 0 and "MiB/s" in shown.raw and "sound" in shown.lines[-1]
    shown = in_terminal(["store", "compare", tmp_path / "a" / root.name, tmp_path / "b" / root.name])
    assert "MiB/s" in shown.raw and "bytes from 0" in shown.raw
