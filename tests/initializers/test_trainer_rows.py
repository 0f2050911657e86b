"""Which rows a builtin trainer learns from, and what an error suggests for others."""

from __future__ import annotations

import pytest

from trainwright.initializers.columns import check_trainer
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.layouts import LAYOUTS

ACCEPTED = {
    "sft": {"prompt-completion", "messages", "text"},
    "dpo": {"preference"},
    "kto": {"preference", "kto"},
    "torchtune": {"prompt-completion"},
    "": {"prompt-completion", "messages", "text", "preference", "kto"},
}


@pytest.mark.parametrize("trainer", ACCEPTED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_trainer_takes_only_rows_that_it_learns_from(layout: str, trainer: str) -> None:
    if LAYOUTS[layout].rows in ACCEPTED[trainer]:
        check_trainer(layout, trainer, "row 1")
        return
    with pytest.raises(
        InitializerError, match=rf"row 1: the rows are .* \(layout {layout}\), but the trainer {trainer} learns from"
    ):
        check_trainer(layout, trainer, "row 1")


@pytest.mark.parametrize(
    ("layout", "trainer", "words"),
    [
        ("preference", "sft", 'use builtin=dpo or builtin=kto; or columns={"prompt": ..., "completion": "chosen"} leaves'),
        ("kto", "sft", 'use builtin=kto; or keep those marked good, and columns={"prompt": ..., "completion": ...}'),
        ("messages", "dpo", 'use builtin=sft; or name the answers to compare with columns={"prompt": ..., "chosen": ..., '),
        ("kto", "dpo", "learns from chosen and rejected answers: use builtin=kto; or name the answers to compare"),
        ("text", "torchtune", "learns from prompts with one answer each: use builtin=sft"),
        ("text", "dpoo", "trainer: builtin: 'dpoo' is not installed; did you mean dpo?"),
    ],
)
def test_error_says_what_to_use_instead(layout: str, trainer: str, words: str) -> None:
    with pytest.raises(InitializerError) as raised:
        check_trainer(layout, trainer, "row 1")
    assert words in str(raised.value)
