"""Which suspensions are ours: those with our mark, as long as the spec has not changed since."""

from __future__ import annotations

from typing import Any

import pytest
from factories import trainjob

from trainwright.api import names
from trainwright.api.phase import is_suspended_by_us
from trainwright.submission.suspension import suspension_mark


def job_with(suspend: bool | None, generation: int | None, mark: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"annotations": {names.SUSPENDED_BY_ANNOTATION: mark} if mark else {}}
    if generation is not None:
        metadata["generation"] = generation
    return trainjob(metadata=metadata, **({} if suspend is None else {"suspend": suspend}))


@pytest.mark.parametrize("generation", [None, 1, 7])
def test_a_suspension_with_its_mark_is_ours_until_the_spec_changes(generation: int | None) -> None:
    (mark,) = suspension_mark(job_with(None, generation)).values()
    after = (generation or 0) + 1
    assert is_suspended_by_us(job_with(True, after, mark))
    assert not is_suspended_by_us(job_with(True, after + 1, mark)), "changed since, as by a user who resumed and suspended it"


@pytest.mark.parametrize(
    ("suspend", "mark"), [(True, ""), (True, "somebody@2"), (False, "trainwright@2"), (None, "trainwright@2")]
)
def test_another_suspension_or_none_is_not_ours(suspend: bool | None, mark: str) -> None:
    assert not is_suspended_by_us(job_with(suspend, 2, mark))
