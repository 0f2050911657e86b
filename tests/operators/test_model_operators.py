"""Operators of the champion: what they say of it, the verdict, what a retry changes, and what is refused without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from factories import task_context
from support.export_fixtures import Export
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.checkpoints.errors import PromotionConflict
from trainwright.checkpoints.promotion import Alias
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.steps.on_cluster import ClusterSteps
from trainwright.steps.requests import StepRequest

CONTEXT = task_context("roll-back")
errors = OnFirstUse("trainwright.operators.errors")
allowed_places = OnFirstUse("trainwright.operators.values.allowed_places")


def promote(root: str, candidate: Export, evaluation: Any, **more: Any) -> dict[str, Any]:
    uri, digest = candidate
    task = operators.PromoteModelOperator(
        task_id="t", export_uri=root, checkpoint_uri=uri, checkpoint_digest=digest, evaluation=evaluation, **more
    )
    verdict: dict[str, Any] = task.execute({})
    return verdict


def figures(loss: float) -> dict[str, Any]:
    return {"loss": loss, "dataset_digest": "sha256:d"}


def champion(root: str) -> str:
    record = Alias(root).read()
    assert record is not None
    return record.current.uri


def test_the_verdict_is_the_result_and_keeping_the_champion_is_no_failure(root: str, export: Callable[[str], Export]) -> None:
    first, worse, better = export("first"), export("worse"), export("better")
    assert promote(root, first, figures(2.0))["promoted"]
    verdict = promote(root, worse, json.dumps(figures(2.5)))
    assert verdict == {
        "promoted": False,
        "reason": "not better: loss 2.5 against 2",
        "champion_uri": first[0],
        "previous_uri": "",
    }
    again = [promote(root, better, figures(1.0), margin="0.5", greater_is_better="False") for _ in range(2)]
    assert [each["promoted"] for each in again] == [True, True]
    assert again[1]["previous_uri"] == first[0]
    assert champion(root) == better[0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"evaluation": {}}, "CheckpointError: the candidate's evaluation has no number 'loss'"),
        ({"evaluation": {"loss": 1.0, "dataset_digest": "sha256:other"}}, "CheckpointError: .*was not measured as the candidate"),
        ({"evaluation": "[1]"}, "evaluation: expected an object"),
        ({"rule": "sometimes"}, "expected better or always"),
        ({"margin": "-1"}, "margin: expected a number that is not negative"),
        ({"margin": "much"}, "margin: expected a number"),
        ({"greater_is_better": "perhaps"}, "greater_is_better: expected true or false"),
        ({"alias": "Not One"}, "is not an alias"),
    ],
)
def test_permanent_promotion_errors_fail_without_retries(
    root: str, export: Callable[[str], Export], more: dict[str, Any], message: str
) -> None:
    first, second = export("first"), export("second")
    promote(root, first, figures(2.0))
    with pytest.raises(errors.NonRetryableError, match=message):
        promote(root, second, **{"evaluation": figures(1.0), **more})
    assert champion(root) == first[0]


@pytest.fixture
def three(root: str, export: Callable[[str], Export]) -> list[Export]:
    exports = [export(name) for name in ("a", "b", "c")]
    for loss, each in zip((3.0, 2.0, 1.0), exports, strict=True):
        assert promote(root, each, figures(loss))["promoted"]
    return exports


def test_a_retry_of_a_roll_back_does_not_undo_it_and_a_clear_rolls_back_again(root: str, three: list[Export]) -> None:
    task = operators.RollBackModelOperator(task_id="t", export_uri=root, reason="too slow")
    for _ in range(3):
        assert task.execute(CONTEXT) == three[1][0]
    record = Alias(root).read()
    assert record is not None
    assert record.current.reason == "too slow (by airflow/d/d/r/roll-back #0)"
    assert task.execute(task_context("roll-back", retries=1)) == three[2][0]
    assert champion(root) == three[2][0]


def test_a_later_promotion_is_not_rolled_back_by_a_retry(root: str, three: list[Export], export: Callable[[str], Export]) -> None:
    task = operators.RollBackModelOperator(task_id="t", export_uri=root)
    assert task.execute(CONTEXT) == three[1][0]
    later = export("later")
    assert promote(root, later, figures(0.5))["promoted"]
    assert task.execute(CONTEXT) == later[0]
    assert champion(root) == later[0]


def test_a_roll_back_of_another_champion_than_expected_is_refused(root: str, three: list[Export]) -> None:
    with pytest.raises(PromotionConflict):
        operators.RollBackModelOperator(task_id="t", export_uri=root, expected_digest=three[0][1]).execute(CONTEXT)
    assert champion(root) == three[2][0]
    operators.RollBackModelOperator(task_id="t", export_uri=root, expected_digest=three[2][1]).execute(CONTEXT)
    assert champion(root) == three[1][0]


@pytest.mark.medium
def test_the_folders_are_places_that_the_list_must_allow(
    root: str, export: Callable[[str], Export], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = export("first")
    monkeypatch.setenv("AIRFLOW_VAR_TRAINWRIGHT_ALLOWED_PLACES", root)
    for task in (
        operators.PromoteModelOperator(
            task_id="t", export_uri="s3://other/x", checkpoint_uri=first[0], checkpoint_digest=first[1]
        ),
        operators.PromoteModelOperator(task_id="t", export_uri=root, checkpoint_uri="s3://other/x", checkpoint_digest=first[1]),
        operators.RollBackModelOperator(task_id="t", export_uri="s3://other/x"),
    ):
        with pytest.raises(allowed_places.PlaceNotAllowed):
            task.execute(CONTEXT)
    assert promote(root, first, figures(1.0))["promoted"]


def read(root: str, **more: Any) -> dict[str, str]:
    state: dict[str, str] = operators.ReadChampionOperator(task_id="read", export_uri=root, **more).execute({})
    return state


def test_the_champion_is_current_until_there_are_other_data(root: str, export: Callable[..., Export]) -> None:
    nothing = dict.fromkeys(("uri", "digest", "dataset_digest", "model_digest", "reason", "training_digest"), "")
    assert read(root, dataset_digest="sha256:d", warm_start=True) == {**nothing, "state": "none", "start_from": "auto"}
    uri, digest = export("first", dataset="sha256:d", model="sha256:m")
    promote(root, (uri, digest), figures(2.0))
    known = {"uri": uri, "digest": digest, "dataset_digest": "sha256:d", "model_digest": "sha256:m", "start_from": "auto"}
    known |= {"reason": "", "training_digest": ""}
    reason = f"the champion {uri} was trained on the same dataset, sha256:d"
    assert read(root, dataset_digest="sha256:d") == {**known, "state": "current", "reason": reason}
    assert read(root, dataset_digest="sha256:d", model_digest="sha256:m")["state"] == "current"
    for other in (
        {"dataset_digest": "sha256:new"},
        {"dataset_digest": "sha256:d", "model_digest": "sha256:new"},
        {"dataset_digest": "sha256:d", "always_train": "true"},
    ):
        assert read(root, **other) == {"state": "outdated", **known}
    assert read(root, alias="challenger")["state"] == "none"
    for base, expected in (("", f"weights:{uri}"), ("sha256:m", f"weights:{uri}"), ("sha256:new", "auto")):
        assert read(root, model_digest=base, warm_start="true")["start_from"] == expected


def test_a_champion_that_is_gone_or_not_allowed_is_no_reason_to_retry(
    root: str, export: Callable[..., Export], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path
    from shutil import rmtree

    uri, digest = export("first")
    promote(root, (uri, digest), figures(2.0))
    rmtree(Path(uri.removeprefix("file://")))
    with pytest.raises(errors.NonRetryableError, match="NoCheckpoint"):
        read(root)
    with pytest.raises(errors.NonRetryableError, match="always_train: expected true or false"):
        read(root, always_train="perhaps")
    monkeypatch.setattr("airflow.sdk.Variable.get", lambda *_args, **_more: "s3://elsewhere")
    with pytest.raises(allowed_places.PlaceNotAllowed, match="export_uri"):
        read(root)


@pytest.mark.parametrize("name", ["ReadChampion", "PromoteModel", "RollBackModel", "RegisterModel"])
def test_exports_on_a_volume_that_the_worker_does_not_mount_fail_without_retries(name: str) -> None:
    exports = "file:///no-such-volume/exports"
    export = {"checkpoint_uri": f"{exports}/run/checkpoint-4", "checkpoint_digest": f"sha256:{'0' * 64}"}
    given: dict[str, Any] = {
        "ReadChampion": {"export_uri": exports},
        "PromoteModel": {"export_uri": exports, **export, "rule": "always", "evaluation": {}},
        "RollBackModel": {"export_uri": exports},
        "RegisterModel": {"registry": "mlflow://model", **export},
    }[name]
    task = getattr(operators, f"{name}Operator")(task_id="t", **given)
    with pytest.raises(errors.NonRetryableError, match=r"NotMounted: .*: /no-such-volume does not exist where this step runs"):
        task.execute(CONTEXT)


ON_CLAIM = "file:///trainwright-workspace/exports"
DIGEST = f"sha256:{'0' * 64}"


@pytest.fixture
def in_pods(connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> list[tuple[ClusterSteps, StepRequest]]:
    """The steps that are done in pods, instead of which only their results are there."""
    done: list[tuple[ClusterSteps, StepRequest]] = []
    results = {
        "read-champion": {"state": "outdated", "reason": "", "uri": f"{ON_CLAIM}/run/checkpoint-5"},
        "promote-model": {"promoted": True, "reason": "better", "champion_uri": "new", "previous_uri": "old"},
        "roll-back-once": {"uri": "old"},
    }

    def call(self: ClusterSteps, request: StepRequest, _run: Any) -> Any:
        done.append((self, request))
        return results[request.step_name()]

    monkeypatch.setattr(ClusterSteps, "__call__", call)
    return done


def test_exports_on_the_claim_are_read_and_changed_in_pods(in_pods: list[tuple[ClusterSteps, StepRequest]]) -> None:
    given = {"task_id": "t", "export_uri": ON_CLAIM, "workspace": "pvc://claim?size=1Gi", "run_id": "named by many runs"}
    assert operators.ReadChampionOperator(**given).execute(CONTEXT)["state"] == "outdated"
    evaluation = {"before": {"loss": 9.0}, "after": {"loss": 2.0}, "dataset_digest": "sha256:d", "summary": "a page"}
    export = {"checkpoint_uri": f"{ON_CLAIM}/run/checkpoint-5", "checkpoint_digest": DIGEST}
    assert operators.PromoteModelOperator(**given, **export, evaluation=evaluation).execute(CONTEXT)["previous_uri"] == "old"
    assert operators.RollBackModelOperator(**given).execute(CONTEXT) == "old"
    assert [(steps.workspace.claim, steps.identity.run) for steps, _ in in_pods] == [("claim", "d/r")] * 3, (
        "not as another DAG run"
    )
    assert all('"on_cancel": "suspend"' in steps.identity.submitter.awaited_by for steps, _ in in_pods), "to be found when left"
    requests = [request.given_values() for _, request in in_pods]
    assert requests[1]["evaluation"]["loss"] == 2.0
    assert "summary" not in requests[1]["evaluation"], "a page is too large for the arguments of a pod"
    assert "named by many runs" in requests[2]["step"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "set workspace to that claim"),
        ({"workspace": "pvc://claim", "runs_on": "worker"}, "/trainwright-workspace does not exist where this step runs"),
    ],
)
def test_exports_on_a_claim_that_nothing_mounts_fail_without_retries(
    in_pods: list[tuple[ClusterSteps, StepRequest]], given: dict[str, str], message: str
) -> None:
    with pytest.raises(errors.NonRetryableError, match=f"NotMounted: .*{message}"):
        operators.ReadChampionOperator(task_id="t", export_uri=ON_CLAIM, **given).execute(CONTEXT)
    assert not in_pods


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"export_uri": "file:///exports"}, "is a folder in the pod of the step"),
        ({"export_uri": ON_CLAIM, "registry": "mlflow://m"}, "/trainwright-workspace does not exist where this step runs"),
        ({"export_uri": ON_CLAIM, "workspace_path": "/w"}, "/trainwright-workspace does not exist where this step runs"),
        ({"export_uri": ON_CLAIM, "training": {"runs_on": "worker"}}, "/trainwright-workspace does not exist"),
        ({"export_uri": ON_CLAIM, "defaults": {"keep_exports": 3}}, "/trainwright-workspace does not exist"),
    ],
)
def test_a_run_whose_exports_later_tasks_do_not_see_is_refused(
    connected: EmbeddedCluster, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.NonRetryableError, match=message):
        operators.StartRunOperator(task_id="t", workspace="pvc://new?size=1Gi", **given).execute(CONTEXT)


@pytest.mark.parametrize(
    "given",
    [
        {"export_uri": ON_CLAIM},
        {"export_uri": "file:///tmp/new/exports", "workspace_path": "/w"},
    ],
)
def test_a_run_whose_exports_later_tasks_see_is_started(connected: EmbeddedCluster, given: dict[str, Any]) -> None:
    started = operators.StartRunOperator(task_id="t", workspace="pvc://new?size=1Gi", **given).execute(CONTEXT)
    assert started["claim"] == "new"
