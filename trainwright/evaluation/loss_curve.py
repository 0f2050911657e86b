"""The training loss over steps, as it was reported while the training was waited for, and its plot.

The metrics have the form of transformers' `log_history`. The plot has the evaluated loss before and after training as horizontal
lines. The PNG needs matplotlib. The SVG and the HTML page have no dependencies, so that pipeline steps and Airflow tasks can use
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from trainwright.api.objects import Obj
from trainwright.checkpoints.training_history import REPORT, STEP, keep_metrics
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.wait.job_events import JobEvents, Logged, MetricChanges

INK, MUTED, GRID, LINE, BEFORE, AFTER = "#1f2933", "#7b8794", "#e4e7eb", "#2f6fab", "#c2571a", "#2d8a57"
SIZE = (8.0, 4.5)  # inches
RESOLUTION = 150  # dots per inch
LABEL_HEIGHT = 30  # points, for two lines
MIN_LABEL_DISTANCE = 0.12  # fraction of the axis; labels of closer lines are moved apart
WIDTH, HEIGHT = 800, 450  # of the SVG, in its user units
LEFT, RIGHT, TOP, BOTTOM = 64, 140, 48, 52  # margins of the SVG
MAX_POINTS = 1000  # in the SVG; longer histories are averaged

LogHistory = Sequence[dict[str, Any]]
_MOST = 20_000
"""Entries that are kept; of more, every second one is dropped."""


class NoLoss(ValueError):
    """Nothing has logged a training loss."""


class MatplotlibMissing(ImportError):
    """The PNG needs matplotlib, which is not installed."""


def draw_loss_curve(log_history: LogHistory, out: Path, *, before: float | None, after: float | None) -> None:
    """Write the curve as a PNG.

    log_history: as in trainer_state.json of transformers. Entries without a finite "loss" and a "step" are skipped; of
    several entries for one step the last is used (a resumed run logs some steps twice). out: the file to write; its
    folder is created if missing. before, after: evaluated loss in nats per token; None draws no line.
    Raises NoLoss if no entry has a training loss, MatplotlibMissing.
    """
    points = _losses(log_history)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MatplotlibMissing(
            "a loss curve as PNG needs matplotlib: install matplotlib, or use loss_curve_svg, which has no dependencies"
        ) from error

    steps = [step for step, _ in points]
    figure = Figure(figsize=SIZE, dpi=RESOLUTION, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(steps, [loss for _, loss in points], color=LINE, linewidth=1.8, solid_capstyle="round")
    top = _top(points, before, after)
    axes.set_ylim(0, top)
    axes.set_xlim(0, max(steps[-1], 1))
    for level, label, colour, direction in _levels(before, after, top):
        axes.axhline(level, color=colour, linewidth=1.2, linestyle=(0, (5, 3)))
        axes.annotate(
            f"{label}\n{level:.2f}",
            xy=(1, level),
            xycoords=axes.get_yaxis_transform(),
            xytext=(6, direction * LABEL_HEIGHT / 2),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
        )
    label_step, label_height = _label_position(points)
    axes.annotate(
        "training", xy=(label_step, label_height), xytext=(0, 6), textcoords="offset points", color=LINE, fontweight="bold"
    )
    axes.set_title(_title(before, after), loc="left", color=INK, pad=12)
    axes.set_xlabel("training step", color=INK)
    axes.set_ylabel("loss (nats per token)", color=INK)
    axes.tick_params(colors=MUTED)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(MUTED)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, format="png", facecolor="white")


def loss_curve_svg(log_history: LogHistory, before: float | None, after: float | None, *, axis: str = "training step") -> str:
    """Return the curve as an SVG element. Arguments are those of `draw_loss_curve`; `axis` says what is counted.

    Raises ValueError without a training loss.
    """
    points = _losses(log_history)
    top, last = _top(points, before, after), max(points[-1][0], 1)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(step: float, loss: float) -> tuple[float, float]:
        return LEFT + step / last * (right - LEFT), bottom - loss / top * (bottom - TOP)

    title = _title(before, after)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, TOP - 20, title, INK, size=16),
    ]
    for loss in _ticks(top):
        _, y = at(0, loss)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{loss:g}", MUTED, anchor="end"))
    for step in _ticks(last):
        x, _ = at(step, 0)
        parts.append(_text(x, bottom + 18, f"{step:g}", MUTED, anchor="middle"))
    parts.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="{MUTED}"/>')
    parts.append(_text((LEFT + right) / 2, HEIGHT - 12, axis, INK, anchor="middle"))
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text x="16" y="{middle:.1f}" fill="{INK}" text-anchor="middle" transform="rotate(-90 16 {middle:.1f})">'
        "loss (nats per token)</text>"
    )
    curve = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in _downsample(points)))
    parts.append(f'<polyline points="{curve}" fill="none" stroke="{LINE}" stroke-width="2" stroke-linejoin="round"/>')
    x, y = at(*_label_position(points))
    parts.append(_text(x, y - 8, "training", LINE, weight="bold"))
    for level, label, colour, direction in _levels(before, after, top):
        _, y = at(0, level)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{colour}" '
            'stroke-width="1.5" stroke-dasharray="6 4"/>'
        )
        parts.append(_text(right + 8, y - 2 - direction * 16, label, colour))
        parts.append(_text(right + 8, y + 14 - direction * 16, f"{level:.2f}", colour))
    return "\n".join([*parts, "</svg>"])


def loss_curve_html(
    log_history: LogHistory,
    before: float | None,
    after: float | None,
    *,
    title: str = "Training loss",
    axis: str = "training step",
) -> str:
    """Return a self-contained HTML page with the SVG of `loss_curve_svg`. Raises ValueError without a training loss."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}</title></head>\n'
        f'<body style="margin:0;max-width:60em">\n{loss_curve_svg(log_history, before, after, axis=axis)}\n</body>\n</html>\n'
    )


def _losses(log_history: LogHistory) -> list[tuple[int, float]]:
    """Return (step, training loss) pairs, sorted by step."""
    losses: dict[int, float] = {}
    for entry in log_history:
        if isinstance(entry, dict) and _is_number(entry.get("loss")) and _is_number(entry.get("step")):
            losses[int(entry["step"])] = float(entry["loss"])
    if not losses:
        raise NoLoss("log_history contains no training loss")
    return sorted(losses.items())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _downsample(points: list[tuple[int, float]]) -> list[tuple[float, float]]:
    size = math.ceil(len(points) / MAX_POINTS)
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    return [(sum(step for step, _ in group) / len(group), sum(loss for _, loss in group) / len(group)) for group in groups]


def _top(points: list[tuple[int, float]], before: float | None, after: float | None) -> float:
    highest = max(*(loss for _, loss in points), *(level for level in (before, after) if level is not None), 0.0)
    return highest * 1.08 or 1.0


def _levels(before: float | None, after: float | None, top: float) -> list[tuple[float, str, str, int]]:
    """Return (level, label, colour, label offset: 1 above, -1 below, 0 beside the line)."""
    is_crowded = before is not None and after is not None and abs(before - after) < MIN_LABEL_DISTANCE * top
    is_before_higher = before is not None and after is not None and before >= after
    levels = []
    for level, label, colour, is_upper in (
        (before, "before", BEFORE, is_before_higher),
        (after, "after", AFTER, not is_before_higher),
    ):
        if level is not None:
            levels.append((level, f"evaluated, {label}", colour, (1 if is_upper else -1) if is_crowded else 0))
    return levels


def _label_position(points: list[tuple[int, float]]) -> tuple[int, float]:
    """Return the position of the curve's label: near the start, and above the nearby points."""
    last = points[-1][0]
    label_step = next((step for step, _ in points if step >= last * 0.15), last)
    return label_step, max(loss for step, loss in points if abs(step - label_step) <= last * 0.08)


def _title(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        known = next(
            (f": {label} {level:.2f}" for label, level in (("before", before), ("after", after)) if level is not None), ""
        )
        return f"Training loss{known}"
    change = f"  {(after - before) / before:+.0%}".replace("-", "\N{MINUS SIGN}") if before else ""
    return f"Evaluated loss {before:.2f} → {after:.2f}{change}"


def _ticks(top: float) -> list[float]:
    """Return up to about six round numbers from 0."""
    power = 10.0 ** math.floor(math.log10(top / 5))
    size = next(power * factor for factor in (1, 2, 5, 10) if top / (power * factor) <= 6)
    return [size * number for number in range(int(top / size) + 1)]


def _text(x: float, y: float, text: str, colour: str, *, anchor: str = "start", size: int = 13, weight: str = "normal") -> str:
    style = f'fill="{colour}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


class MetricHistory:
    """A callback for job events."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        """That of the training on its workspace, where the history is kept."""
        self.entries: list[dict[str, Any]] = []
        """The metrics of each report, and its `step`; at the end also what the reports have missed."""
        self._changes = MetricChanges()

    def begin(self, trainjob: Obj) -> None:
        """The history is that of this job from now on."""
        self.folder = folder_of_job(trainjob) or self.folder

    def __call__(self, events: JobEvents) -> None:
        if self._changes.is_counted and any(isinstance(event, Logged) for event in events):
            self.entries, self._changes = [], MetricChanges()  # the training's own history has steps, which these have not
        for step, metrics in self._changes.of(events):
            self.entries.append({**metrics, "step": step})
            if len(self.entries) > _MOST:
                del self.entries[1:-1:2]

    @property
    def count(self) -> str:
        """What the `step` of an entry counts: steps, or reports of a training that reports no step."""
        return REPORT if self._changes.is_counted else STEP

    def loss_curve(self) -> str:
        """Return the loss over steps as HTML, over reports if the training reports no step; a sentence if none was reported."""
        try:
            return loss_curve_html(self.entries, None, None, axis=REPORT if self.count == REPORT else "training step")
        except ValueError:
            return "<p>The training reported no loss.</p>"


@contextmanager
def kept_history(workspace_path: str, folder: str = "") -> Iterator[MetricHistory]:
    """Yield the history of a training, and write it to `metrics.jsonl` in its folder when the block has ended without error.

    `workspace_path` is where this process has mounted the workspace; if that is empty, or the folder, nothing is written. The folder
    is that of the job that the history has begun with, else `folder`.
    """
    history = MetricHistory(folder)
    yield history
    if workspace_path and history.folder:
        keep_metrics(Path(workspace_path), history.folder, history.entries, history.count)
