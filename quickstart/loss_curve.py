"""The picture that ends the quickstart: the training loss falling, and what that did for rows held out of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

INK, QUIET, LINE, BEFORE, AFTER = "#1f2933", "#7b8794", "#2f6fab", "#c2571a", "#2d8a57"
SIZE = (8.0, 4.5)  # inches
RESOLUTION = 150  # dots per inch
LABEL_HEIGHT = 30  # points, of two lines
CROWDED = 0.12  # of the axis: two levels closer than that have their labels moved apart


def draw_loss_curve(log_history: list[dict[str, Any]], out: Path, *, before: float, after: float) -> None:
    """Draw the training loss over steps, with the held-out loss before and after as two levels, as a PNG.

    log_history: as in a trainer_state.json of transformers; entries without "loss" and "step" are passed over, and of
    several entries for one step the last counts (a resumed run logs some steps twice). out: the file to write; its folder
    is made if need be. before, after: held-out loss in nats per token.
    Raises ValueError when no entry tells a training loss.
    """
    losses = {int(entry["step"]): float(entry["loss"]) for entry in log_history if "loss" in entry and "step" in entry}
    if not losses:
        raise ValueError("log_history holds no training loss")
    steps = sorted(losses)

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=RESOLUTION, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(steps, [losses[step] for step in steps], color=LINE, linewidth=1.8, solid_capstyle="round")
    top = max(before, after, *losses.values()) * 1.08
    axes.set_ylim(0, top)
    axes.set_xlim(0, steps[-1])
    crowded = abs(before - after) < CROWDED * top
    for level, upper, colour, word in ((before, before >= after, BEFORE, "before"), (after, after > before, AFTER, "after")):
        axes.axhline(level, color=colour, linewidth=1.2, linestyle=(0, (5, 3)))
        shift = (LABEL_HEIGHT / 2 if upper else -LABEL_HEIGHT / 2) if crowded else 0
        axes.annotate(
            f"held-out, {word}\n{level:.2f}",
            xy=(1, level),
            xycoords=axes.get_yaxis_transform(),
            xytext=(6, shift),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
        )
    named = next((step for step in steps if step >= steps[-1] * 0.15), steps[-1])
    nearby = max(losses[step] for step in steps if abs(step - named) <= steps[-1] * 0.08)
    axes.annotate("training", xy=(named, nearby), xytext=(0, 6), textcoords="offset points", color=LINE, fontweight="bold")
    change = f"{(after - before) / before:+.0%}".replace("-", "\N{MINUS SIGN}") if before else ""
    axes.set_title(f"Held-out loss {before:.2f} → {after:.2f}  {change}", loc="left", color=INK, pad=12)
    axes.set_xlabel("training step", color=INK)
    axes.set_ylabel("loss (nats per token)", color=INK)
    axes.tick_params(colors=QUIET)
    axes.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(QUIET)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, format="png", facecolor="white")
