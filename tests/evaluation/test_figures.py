"""How much a figure has changed, in words."""

from __future__ import annotations

import pytest

from trainwright.evaluation.figures import relative_change


@pytest.mark.parametrize(
    ("before", "after", "decimals", "words"),
    [(4.0, 1.0, 0, "-75 %"), (3.5781, 2.4483, 1, "-31.6 %"), (1.0, 1.5, 0, "+50 %"), (0.0, 1.0, 0, "")],
)
def test_a_change_is_a_percentage_unless_the_figure_was_zero(before: float, after: float, decimals: int, words: str) -> None:
    assert relative_change(before, after, decimals) == words
