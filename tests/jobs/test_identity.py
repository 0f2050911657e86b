from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from trainwright.jobs import Identity
from trainwright.jobs.state.identity import NAME_LIMIT
from trainwright.jobs.state.run_folder import label_value

text = st.text(max_size=200)


@given(text, text, text, st.integers(1, 99))
def test_property_every_name_is_a_dns_label_that_leaves_room_for_pods(owner: str, run: str, step: str, attempt: int) -> None:
    name = Identity(owner, run, step).name(attempt)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= NAME_LIMIT


@given(text)
def test_property_every_text_makes_a_label_value(value: str) -> None:
    assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", label_value(value))
    assert len(label_value(value)) <= 63


def test_names_are_the_same_again_and_different_for_different_steps() -> None:
    one = Identity("kfp", "run 1", "train")
    assert one.name() == Identity("kfp", "run 1", "train").name()
    others = [Identity("kfp", "run 1", "evaluate"), Identity("kfp", "run 2", "train"), Identity("kfp", "run 1", "train", 0)]
    assert len({one.name(), one.name(2), *(other.name() for other in others)}) == 5


def test_runs_that_are_cut_to_the_same_slug_keep_apart() -> None:
    assert Identity("o", "x" * 100 + "1", "s").name() != Identity("o", "x" * 100 + "2", "s").name()
