"""The tables of steps: inputs that their requests have, fields that their forms have, and the order that follows from them.

What compiled pipelines and parsed DAGs make of them is tested in tests/pipelines/test_every_pipeline.py and tests/dags/test_dags.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.jobs import TrainRequest
from trainwright.jobs.request.setting import names_of, settings_of
from trainwright.steps import requests
from trainwright.steps.chain import FINETUNING, FULL, RETRAINING, SWEEP, Source, Table, inputs_of, predecessors

FORMS = {
    "finetuning": requests.FineTuning,
    "full": requests.FullPipeline,
    "retraining": requests.Retraining,
    "sweep": requests.Sweep,
}
TABLES: dict[str, Table] = {"finetuning": FINETUNING, "full": FULL, "retraining": RETRAINING, "sweep": SWEEP}
REQUESTS: dict[str, Any] = {
    "initialize-dataset": requests.InitializeDataset,
    "initialize-model": requests.InitializeModel,
    "train": TrainRequest,
    "export-checkpoint": requests.ExportCheckpoint,
    "evaluate": requests.EvaluateExport,
    "evaluate-champion": requests.EvaluateExport,
    "promote-model": requests.PromoteModel,
    "promote-over-champion": requests.PromoteModel,
    "register-model": requests.RegisterModel,
    "pull-dvc-data": requests.PullDvcData,
    "preprocess-dataset": requests.PreprocessDataset,
    "read-champion": requests.ReadChampion,
    "plan-trials": requests.PlanTrials,
    "pick-trial": requests.PickTrial,
}
OF_EDGES = {
    "train": {"tracking", "workspace_path", "trial"},
    "register-model": {"workspace_path"},
    "plan-trials": {"dataset_digest", "model_digest"},
    "export-checkpoint": {"trial_index"},
    "evaluate": {"trial_index"},
}
"""Parameters of components and operators that are none of the request."""
NOT_IN_FORM = {("sweep", "register-model"): "registry", ("retraining", "register-model"): "registry"}
"""No pipeline and no DAG has these steps."""


@pytest.mark.parametrize("name", TABLES)
def test_inputs_are_settings_of_the_step_and_sources_are_fields_of_the_form(name: str) -> None:
    fields = names_of(FORMS[name])
    for step, row in TABLES[name].items():
        settings = settings_of(REQUESTS[step])
        assert row.of_values.keys() - OF_EDGES.get(step, set()) <= settings.keys(), step
        taken: Source
        for key, taken in row.of_values.items():
            if isinstance(taken, str):
                assert "." in taken or taken in fields or NOT_IN_FORM.get((name, step)) == taken, (step, key)
            else:
                assert taken.keys() <= names_of(settings[key].of), (step, key)


@pytest.mark.parametrize(
    ("table", "step", "expected"),
    [
        (FINETUNING, "initialize-model", {"start-run"}),
        (FINETUNING, "train", {"initialize-dataset", "initialize-model"}),
        (FINETUNING, "export-checkpoint", {"train"}),
        (FINETUNING, "promote-model", {"evaluate"}),
        (FINETUNING, "register-model", {"evaluate"}),
        (FULL, "initialize-dataset", {"preprocess-dataset"}),
        (FULL, "train", {"initialize-dataset", "initialize-model"}),
        (RETRAINING, "train", {"read-champion"}),
        (SWEEP, "train", {"plan-trials"}),
        (SWEEP, "export-checkpoint", {"pick-trial"}),
    ],
)
def test_step_follows_those_whose_outputs_it_takes_but_not_their_predecessors(
    table: Table, step: str, expected: set[str]
) -> None:
    assert predecessors(table, step) == expected


def test_inputs_are_values_of_the_form_and_outputs_of_earlier_steps() -> None:
    form = {"dataset_uri": "s3://b/data", "model_uri": "hf://m", "export_uri": "s3://b/e", "epochs": 3}
    assert inputs_of(FINETUNING["train"].of_values, form, "{}/{}".format) == {
        "dataset_uri": "s3://b/data",
        "model_uri": "hf://m",
        "export_uri": "s3://b/e",
        "dataset_digest": "initialize-dataset/digest",
        "model_digest": "initialize-model/digest",
        "data": {"model_shape": "initialize-model/shape"},
    }
