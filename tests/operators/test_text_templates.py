"""Text stays text in a DAG that renders templates to native objects, and objects stay objects."""

from __future__ import annotations

from typing import Any

import pytest
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages

from trainwright import operators

require_packages("airflow")
sdk = OnFirstUse("airflow.sdk")
pytestmark = pytest.mark.medium

PARAMS = {
    "one": 1,
    "flag": True,
    "version": "1.10",
    "rate": "1e-4",
    "lr": 0.5,
    "nothing": None,
    "json": '{"a": 1}',
    "env": {"A": "b"},
}


def rendered(of: str = "TrainJobOperator", *, native: bool = True, **arguments: Any) -> Any:
    with sdk.DAG("d", schedule=None, render_template_as_native_obj=native):
        task = getattr(operators, of)(task_id="t", **arguments)
    task.render_template_fields({"params": PARAMS, "ds": "2026-01-01", "ds_nodash": "20260101"})
    return task


TEXTS = [
    ("1", "1"),
    ("true", "true"),
    ("True", "True"),
    ("1.10", "1.10"),
    ("0x10", "0x10"),
    ('{"a": 1}', '{"a": 1}'),
    ("None", "None"),
    ("{{ params.one }}", "1"),
    ("{{ params.flag }}", "True"),
    ("{{ params.version }}", "1.10"),
    ("{{ params.rate }}", "1e-4"),
    ("{{ params.json }}", '{"a": 1}'),
    ("--lr={{ params.rate }}", "--lr=1e-4"),
    ("{{ params.one }}{{ params.one }}", "11"),
    ("", ""),
]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("template", "text"), TEXTS)
def test_entries_of_text_structures_render_to_text(template: str, text: str, native: bool) -> None:
    names = {"labels": {"l": template}, "env": {"E": template}, "args": [template], "command": ["c", template]}
    request = rendered(native=native, image="i", **names).request()
    assert (request.labels["l"], request.env["E"], request.args[0], request.command[1]) == (text, text, text, text)


def test_objects_stay_objects_in_native_dags() -> None:
    task = rendered(
        env="{{ params.env }}",
        settings={"learning_rate": "{{ params.lr }}", "steps": "{{ params.one }}"},
        num_nodes="{{ params.one }}",
        resume="{{ params.nothing }}",
        limits={"fail_if_stuck": "{{ params.flag }}"},
    )
    assert task.env == {"A": "b"}
    assert task.settings == {"learning_rate": 0.5, "steps": 1}
    assert (task.num_nodes, task.resume, task.limits) == (1, None, {"fail_if_stuck": True})
    sensor = rendered("TrainJobSensor", trainjob="{{ params.env }}")
    assert sensor.trainjob == PARAMS["env"]


def test_settings_inside_objects_of_settings_render_to_text() -> None:
    nested = {"env": {"E": "{{ params.one }}"}, "num_nodes": "{{ params.one }}", "args": ["1"]}
    task = rendered("StartRunOperator", workspace="pvc://w", training=nested)
    assert task.training == {"env": {"E": "1"}, "num_nodes": 1, "args": ["1"]}
    step = rendered(
        "ExportCheckpointOperator",
        export_uri="s3://b/e",
        workspace="pvc://w",
        job={"env": {"E": "0"}, "placement": {"annotations": {"a": "{{ params.one }}"}}},
    )
    assert step.job == {"env": {"E": "0"}, "placement": {"annotations": {"a": "1"}}}
