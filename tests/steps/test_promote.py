"""When a candidate takes the place of the champion, and when it does not; two decisions at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.export_fixtures import Export

from trainwright.checkpoints.errors import CheckpointError, FigureNotFinite, NoCheckpoint, PromotionConflict
from trainwright.checkpoints.promotion import Alias
from trainwright.steps.promotion import promote
from trainwright.steps.promotion.promote import Gate, promote_if_better


def promoted(root: str, candidate: Export, loss: float | None = None, **more: Any) -> bool:
    evaluation = {"loss": loss, "dataset_digest": "sha256:d"} if loss is not None else {}
    return promote_if_better(root, *candidate, **{"evaluation": evaluation, **more}).promoted


def champion(root: str) -> str:
    record = Alias(root).read()
    assert record is not None
    return record.current.uri


def test_the_first_is_promoted_a_better_one_replaces_it_and_a_worse_one_does_not(
    root: str, export: Callable[[str], Export]
) -> None:
    first, better, worse = export("first"), export("better"), export("worse")
    assert promoted(root, first, 2.0)
    assert promoted(root, better, 1.5)
    verdict = promote_if_better(root, *worse, evaluation={"loss": 1.6, "dataset_digest": "sha256:d"})
    assert not verdict.promoted
    assert verdict.reason == "not better: loss 1.6 against 1.5"
    assert (verdict.champion, verdict.previous) == (better[0], first[0])
    assert champion(root) == better[0]
    assert promoted(root, better, 9.9), "promoting what is promoted changes nothing"


@pytest.mark.parametrize(
    ("gate", "value", "expected"),
    [
        (Gate(), 1.0, False),
        (Gate(), 0.999, True),
        (Gate(margin=0.1), 0.95, False),
        (Gate(margin=0.1), 0.9, True),
        (Gate(greater_is_better=True), 1.1, True),
        (Gate(greater_is_better=True), 0.9, False),
        (Gate("always"), 5.0, True),
    ],
)
def test_the_gate_decides(root: str, export: Callable[[str], Export], gate: Gate, value: float, expected: bool) -> None:
    promoted(root, export("first"), 1.0)
    assert promoted(root, export("second"), value, gate=gate) is expected


def test_figures_of_other_data_are_not_compared(root: str, export: Callable[[str], Export]) -> None:
    first, second = export("first"), export("second")
    promoted(root, first, 1.0)
    other = {"loss": 0.5, "dataset_digest": "sha256:other"}
    with pytest.raises(
        CheckpointError, match="was not measured as the candidate's: dataset_digest is sha256:d there and sha256:other"
    ):
        promote_if_better(root, *second, evaluation=other)
    again = {"loss": 0.4, "dataset_digest": "sha256:other"}
    verdict = promote_if_better(root, *second, evaluation=other, champion_evaluation=again, champion_digest=first[1])
    assert (verdict.promoted, verdict.champion) == (False, first[0])


@pytest.mark.parametrize(
    ("metric", "champions", "candidates", "reason"),
    [
        ("loss", {"rows_digest": "sha256:r"}, {"rows_digest": "sha256:s"}, "rows_digest is sha256:r there and sha256:s here"),
        ("loss", {}, {"rows_digest": "sha256:s"}, "rows_digest is not known there and sha256:s here"),
        ("perplexity", {"rows_digest": "sha256:r"}, {}, "rows_digest is sha256:r there and not known here"),
        ("held_out/exact_match", {"rows_digest": "sha256:r"}, {"rows_digest": "sha256:s"}, "rows_digest"),
        (
            "arc_easy/acc",
            {"task_limit": 10, "few_shot": 0},
            {"task_limit": 0, "few_shot": 0},
            "task_limit is 10 there and 0 here",
        ),
        ("arc_easy/acc", {"rows_digest": "sha256:r"}, {"rows_digest": "sha256:s"}, ""),
        ("loss", {"rows_digest": "sha256:r", "task_limit": 10}, {"rows_digest": "sha256:r", "task_limit": 0}, ""),
        ("reward", {}, {}, ""),
    ],
)
def test_only_figures_that_were_measured_alike_are_compared(
    metric: str, champions: Any, candidates: Any, reason: str, root: str, export: Callable[[str], Export]
) -> None:
    promote_if_better(root, *export("first"), evaluation={metric: 1.0, **champions}, gate=Gate(metric=metric))
    asked = {"evaluation": {metric: 0.5, **candidates}, "gate": Gate(metric=metric)}
    if reason:
        with pytest.raises(CheckpointError, match=reason):
            promote_if_better(root, *export("second"), **asked)
    else:
        assert promote_if_better(root, *export("second"), **asked).promoted


def test_loss_of_training_rows_is_no_held_out_loss(root: str, export: Callable[[str], Export]) -> None:
    """Not even of the first candidate, which nothing is compared with."""
    with pytest.raises(CheckpointError, match="it is of training rows, since the dataset has no held-out ones"):
        promote_if_better(root, *export("first"), evaluation={"training_loss": 0.1, "held_out": False})


def test_figures_of_an_earlier_champion_do_not_count(root: str, export: Callable[[str], Export]) -> None:
    first, second, third = export("first"), export("second"), export("third")
    promoted(root, first, 3.0)
    promoted(root, second, 1.0)
    stale = {"loss": 3.0, "dataset_digest": "sha256:d"}
    assert not promoted(root, third, 2.0, champion_evaluation=stale, champion_digest=first[1])


@pytest.mark.parametrize("evaluation", [{}, {"loss": "low"}, {"loss": True}, {"perplexity": 2.0}])
def test_a_missing_figure_is_an_error(root: str, export: Callable[[str], Export], evaluation: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="has no number 'loss'; its numbers: "):
        promote_if_better(root, *export("first"), evaluation=evaluation)


def test_missing_and_changed_exports_are_not_promoted(root: str, export: Callable[[str], Export]) -> None:
    uri, digest = export("first")
    with pytest.raises(NoCheckpoint):
        promoted(root, (f"{uri}-2", digest), 1.0)
    with pytest.raises(CheckpointError):
        promoted(root, (uri, "sha256:" + "0" * 64), 1.0)
    assert Alias(root).read() is None


def test_a_promotion_meanwhile_is_compared_with_anew(
    root: str, export: Callable[[str], Export], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, fast, slow = export("first"), export("fast"), export("slow")
    promoted(root, first, 3.0)
    real, calls = promote.Alias.promote, []

    def interrupted(self: Alias, *arguments: Any, **options: Any) -> Any:
        if not calls:
            calls.append(1)
            real(self, fast[0], digest=fast[1], evaluation={"loss": 1.0, "dataset_digest": "sha256:d"})
        return real(self, *arguments, **options)

    monkeypatch.setattr(promote.Alias, "promote", interrupted)
    assert not promoted(root, slow, 2.0), "it is better than the first, but not than the one promoted meanwhile"
    assert champion(root) == fast[0]


def test_an_alias_that_changes_at_every_try_is_an_error(
    root: str, export: Callable[[str], Export], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise PromotionConflict("meanwhile")

    monkeypatch.setattr(promote.Alias, "promote", never)
    with pytest.raises(PromotionConflict):
        promoted(root, export("first"), 1.0)


@pytest.mark.parametrize("fields", [{"rule": "sometimes"}, {"margin": -1.0}])
def test_a_gate_that_means_nothing_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        Gate(**fields)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("rule", ["better", "always"])
def test_figure_that_is_not_finite_promotes_nothing(root: str, export: Callable[[str], Export], value: float, rule: str) -> None:
    candidate = export("first")
    with pytest.raises(FigureNotFinite, match="the figure loss of its evaluation is"):
        promoted(root, candidate, value, gate=Gate(rule))
    with pytest.raises(FigureNotFinite):
        Alias(root).promote(*candidate[:1], evaluation={"accuracy": value})
    assert Alias(root).read() is None


@pytest.mark.parametrize(
    ("figures", "gate", "expected"),
    [
        ({"rows": 20, "trained_rows": 20}, Gate(), False),
        ({"rows": 20, "trained_rows": 1}, Gate(), False),
        ({"rows": 21, "trained_rows": 1}, Gate(), True),
        ({"rows": 20, "trained_rows": 0}, Gate(), True),
        ({"rows": 20, "trained_rows": 20}, Gate(allow_trained_rows=True), True),
        ({"rows": 20, "trained_rows": 20}, Gate("always"), True),
        ({"rows": 20, "trained_rows": 20, "arc_easy/acc": 0.5}, Gate(metric="arc_easy/acc"), True),
    ],
)
@pytest.mark.parametrize("has_champion", [False, True])
def test_figures_of_rows_that_are_trained_on_promote_nothing(
    root: str, export: Callable[[str], Export], figures: dict[str, Any], gate: Gate, expected: bool, has_champion: bool
) -> None:
    before = {"loss": 2.0, "arc_easy/acc": 0.7, "dataset_digest": "sha256:d"}
    if has_champion:
        promote_if_better(root, *export("first"), evaluation=before)
        gate = replace(gate, greater_is_better=False)
    verdict = promote_if_better(root, *export("next"), evaluation={**before, "loss": 1.0, **figures}, gate=gate)
    assert verdict.promoted is expected
    if not expected:
        assert "of 20 are also trained on; prepare the dataset with drop_overlap" in verdict.reason
        assert bool(verdict.champion) is has_champion


@pytest.mark.parametrize(
    ("base", "gate", "expected"),
    [
        ({"loss": 2.0}, Gate(), True),
        ({"loss": 0.5}, Gate(), False),
        ({"loss": 1.0}, Gate(), False),
        ({"loss": 0.5}, Gate("always"), True),
        ({"loss": 2.0}, Gate(greater_is_better=True), False),
        ({"other": 0.5}, Gate(), True),
        (None, Gate(), True),
    ],
)
def test_the_first_is_compared_with_its_base_model(
    root: str, export: Callable[[str], Export], base: dict[str, float] | None, gate: Gate, expected: bool
) -> None:
    evaluation = {"loss": 1.0, "dataset_digest": "sha256:d", **({"base": base} if base else {})}
    verdict = promote_if_better(root, *export("first"), evaluation=evaluation, gate=gate)
    assert verdict.promoted is expected
    assert verdict.reason.startswith("not better: loss 1 against") is not expected
