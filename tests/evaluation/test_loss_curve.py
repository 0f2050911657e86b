"""The loss curve as PNG, SVG and HTML, and the error when there is nothing to draw or nothing to draw with."""

import re
import struct
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.evaluation.loss_curve import MatplotlibMissing, draw_loss_curve, loss_curve_html, loss_curve_svg

HISTORY: list[dict[str, Any]] = [{"step": step, "loss": 4.0 / step} for step in range(5, 100, 5)]
HISTORY += [{"step": 50, "eval_loss": 1.0}, {"step": 100, "train_runtime": 3.0, "train_loss": 1.0}]


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.medium
def test_a_picture_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "loss.png"
    draw_loss_curve(HISTORY, out, before=5.0, after=0.5)
    picture = out.read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (1200, 675)


@pytest.mark.parametrize(("before", "after"), [(1.0, 1.01), (None, None), (1.0, None), (None, 0.5)])
def test_close_levels_missing_levels_and_one_entry_can_be_drawn(
    tmp_path: Path, before: float | None, after: float | None
) -> None:
    pytest.importorskip("matplotlib")
    draw_loss_curve([{"step": 5, "loss": 1.0}], tmp_path / "loss.png", before=before, after=after)
    assert (tmp_path / "loss.png").stat().st_size > 1000


def test_without_matplotlib_the_svg_is_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MatplotlibMissing, match=r"install matplotlib, or use loss_curve_svg"):
        draw_loss_curve(HISTORY, tmp_path / "loss.png", before=1.0, after=1.0)
    assert not list(tmp_path.iterdir())


def test_the_svg_shows_both_levels_and_the_change() -> None:
    shown = texts(loss_curve_svg(HISTORY, 5.0, 0.5))
    assert shown[0] == "Evaluated loss 5.00 → 0.50  \N{MINUS SIGN}90%"
    assert {"evaluated, before", "5.00", "evaluated, after", "0.50", "training", "training step"} <= set(shown)


@pytest.mark.parametrize(
    ("before", "after", "title"),
    [(None, None, "Training loss"), (5.0, None, "Training loss: before 5.00"), (None, 0.5, "Training loss: after 0.50")],
)
def test_a_level_that_is_not_known_is_not_drawn(before: float | None, after: float | None, title: str) -> None:
    svg = loss_curve_svg(HISTORY, before, after)
    assert texts(svg)[0] == title
    assert svg.count("stroke-dasharray") == sum(level is not None for level in (before, after))


def test_labels_of_close_levels_do_not_overlap() -> None:
    svg = loss_curve_svg(HISTORY, 1.0, 1.01)
    places = [float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>evaluated', svg)]
    assert abs(places[0] - places[1]) > 28


@pytest.mark.medium
def test_a_long_history_is_averaged() -> None:
    svg = loss_curve_svg([{"step": step, "loss": 1.0} for step in range(1, 50_000)], None, None)
    assert len(svg) < 40_000


def test_the_page_stands_alone() -> None:
    page = loss_curve_html(HISTORY, 5.0, 0.5, title="Run <a>")
    assert "<title>Run &lt;a&gt;</title>" in page
    assert loss_curve_svg(HISTORY, 5.0, 0.5) in page
    assert not re.findall(r"(?:src|href)=", page)


@pytest.mark.parametrize("history", [[{"step": 1, "eval_loss": 1.0}], [], [{"step": 1, "loss": float("nan")}], ["loss"]])
def test_a_history_without_losses_is_refused(tmp_path: Path, history: Any) -> None:
    with pytest.raises(ValueError, match="no training loss"):
        loss_curve_svg(history, 1.0, 1.0)
    with pytest.raises(ValueError, match="no training loss"):
        draw_loss_curve(history, tmp_path / "loss.png", before=1.0, after=1.0)
    assert not list(tmp_path.iterdir())


NUMBER = st.floats(0, 1e6, allow_subnormal=False)


@given(
    history=st.lists(st.fixed_dictionaries({"step": st.integers(0, 10**6), "loss": NUMBER | st.just(float("nan"))}), max_size=20),
    before=st.none() | NUMBER,
    after=st.none() | NUMBER,
)
def test_property_what_is_drawn_stays_inside_the_picture(
    history: list[dict[str, Any]], before: float | None, after: float | None
) -> None:
    try:
        svg = loss_curve_svg(history, before, after)
    except ValueError:
        return
    root = ElementTree.fromstring(svg)
    curve = next(root.iter("{http://www.w3.org/2000/svg}polyline")).attrib["points"]
    for point in curve.split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= 800
        assert 0 <= y <= 450
