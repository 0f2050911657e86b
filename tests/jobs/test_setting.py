"""Settings: what may be given, how it is noted and joined, and what another process reads of it."""

from __future__ import annotations

import functools
import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trainwright.steps.requests as step_requests
from trainwright.jobs import TrainRequest
from trainwright.jobs.credentials.secret_detection import LiteralSecret
from trainwright.jobs.request.groups import Placement
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.model_shape import ModelShape
from trainwright.jobs.request.setting import REQUIRED, Settings, settings_of
from trainwright.steps.requests import EvaluateExport, InitializeDataset, Run

OF_STEPS: list[Any] = [one for one in vars(step_requests).values() if isinstance(one, type) and issubclass(one, Settings)]
REQUESTS: list[type[Settings]] = [TrainRequest, *filter(settings_of, OF_STEPS)]
TOKEN = "hf_" + "aB3" * 10


def problems_of(cls: type[Settings], values: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidSettings) as raised:
        cls.parse(values)
    return raised.value.problems


@pytest.mark.parametrize(
    ("cls", "values", "problems"),
    [
        (TrainRequest, {"imagee": "x"}, [("imagee", "unknown; did you mean image?")]),
        (TrainRequest, {"restarts": 2}, [("restarts", "unknown; it is limits.restarts")]),
        (TrainRequest, {"limits": {"restart": 2}}, [("limits.restart", "unknown; did you mean restarts?")]),
        (TrainRequest, {"limits": {"restarts": "two"}}, [("limits.restarts", "expected a whole number")]),
        (TrainRequest, {"limits": 3}, [("limits", "expected an object with settings by name")]),
        (
            TrainRequest,
            {"limits": {"restarts": -1}, "num_nodes": -1},
            [("num_nodes", "expected at least 1"), ("limits.restarts", "expected at least 1")],
        ),
        (TrainRequest, {"placement": {"topology": "near"}}, [("placement.topology", "'near' is not one of")]),
        (TrainRequest, {"placement": {"priority_class": "p"}}, [("placement.priority_class", "requires a queue")]),
        (TrainRequest, {"workspace": 0}, [("workspace", "expected text")]),
        (TrainRequest, {"data": {"model_shape": 3}}, [("data.model_shape", "expected an object")]),
        (EvaluateExport, {"few_shot": 5}, [("few_shot", "unknown; it is harness.few_shot")]),
        (InitializeDataset, {"test_fraction": float("nan")}, [("test_fraction", "expected a number from 0 to less than 1")]),
        (InitializeDataset, {}, [("dataset_uri", "required")]),
        (Run, {"training": {"limits": {"restarts": -1}}}, [("training.limits.restarts", "expected at least 1")]),
    ],
)  # fmt: skip
def test_each_problem_has_its_path(cls: type[Settings], values: Any, problems: list[tuple[str, str]]) -> None:
    found = problems_of(cls, values)
    assert [path for path, _ in found] == [path for path, _ in problems]
    assert all(message.startswith(said) for (_, message), (_, said) in zip(found, problems, strict=True)), found


@pytest.mark.parametrize(
    ("mine", "theirs", "path"),
    [
        ({"image": "a:1"}, {"image": "a:2"}, "image"),
        ({"limits": {"restarts": 2}}, {"limits": {"restarts": 3}}, "limits.restarts"),
        ({"limits": {"fail_if_stuck": True}}, {"limits": {"fail_if_stuck": False}}, "limits.fail_if_stuck"),
        ({"workspace": "pvc://a"}, {"workspace": "pvc://b"}, "workspace"),
    ],
)
def test_setting_that_is_given_twice_is_refused(mine: Any, theirs: Any, path: str) -> None:
    with pytest.raises(InvalidSettings, match=f"^{path}: given twice, with different values"):
        TrainRequest.parse(mine, rest=TrainRequest.parse_some(theirs))


def test_settings_are_checked_together_once_they_are_whole() -> None:
    some = TrainRequest.parse_some({"code": "/x"})
    assert some.given_values() == {"code": "/x"}
    with pytest.raises(InvalidSettings, match="command: required with code"):
        some.checked()
    assert some.having(command=["train.py"]).checked().command == ["train.py"]
    assert repr(InitializeDataset().dataset_uri) == repr(REQUIRED) == "REQUIRED"
    with pytest.raises(InvalidSettings, match="dataset_uri: required"):
        InitializeDataset().checked()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"placement": {"annotations": {"a": TOKEN}}}, "placement.annotations.a"),
        ({"placement": json.dumps({"queue_name": TOKEN})}, "placement.queue_name"),
        ({"placement": f"{{queue_name: {TOKEN}"}, "placement"),
        ({"data": {"dataset_env": {"DB_PASSWORD": "plain"}}}, "data.dataset_env.DB_PASSWORD"),
        ({"data": {"metadata_loc": f"s3://a #{TOKEN}"}}, "data.metadata_loc"),
        ({"data": {"no_such": [TOKEN]}}, "data.no_such[0]"),
        ({"placement": Placement(annotations={"a": TOKEN})}, "placement.annotations.a"),
        ({"num_nodes": -1, "limits": {"restarts": -1}, "env": {"A": TOKEN}}, "env.A"),
    ],
)
def test_credentials_are_refused_before_anything_else_is_said(values: Any, field: str) -> None:
    with pytest.raises(LiteralSecret) as raised:
        TrainRequest.parse(values)
    assert [problem.field for problem in raised.value.problems] == [field]
    assert TOKEN not in str(raised.value)


def test_credentials_in_the_job_of_a_step_are_refused() -> None:
    with pytest.raises(LiteralSecret, match=r"env\.DB_PASSWORD"):
        Run.parse_some({"evaluation": {"env": {"DB_PASSWORD": "plain"}, "max_rows": "many"}})


def test_no_two_groups_have_settings_of_one_name() -> None:
    for cls in REQUESTS:
        if cls is not Run and cls.__name__ != "RunSteps":
            names = [name for one in settings_of(cls).values() for name in (settings_of(one.of) if one.of else [one.name])]
            assert len(names) == len(set(names)), cls


OF_KIND: dict[str, list[Any]] = {
    "text": ["", "x", "a b", "7", "true"],
    "integer": [0, 1, 2, "3", 4.0],
    "seconds": [0, 1, "60", 90.0],
    "number": [0, 0.5, 2, "0.25"],
    "flag": [True, False, "true"],
    "object": [{}, {"a": "b"}, '{"cpu": "2"}', {"a": {"b": [1, 2.5, None]}}],
    "list": [[], ["a"], '["a", "b"]', [{"a": 1}]],
    "function": ["", "def f(): ...", {"name": "f", "source": "def f(): ..."}],
    "manifest": [""],
}
WRITTEN: dict[str, list[Any]] = {
    "workspace": ["pvc://claim/folder?size=1Gi"],
    "topology": ["exclusive:zone"],
    "logs": ["none", "all", "3", "node:all"],
    "live": [["a"]],
    "indices": [[1, 2]],
    "resume": ["last", "weights:s3://a/b"],
    "dataset_uri": ["hf://a/b", "cache://s/t"],
    "model_shape": [dict.fromkeys((one.name for one in fields(ModelShape)), 8)],
}


def is_accepted(cls: type[Settings], values: Any) -> bool:
    try:
        cls.parse_some(values)
    except InvalidSettings:
        return False
    return True


def written_values(cls: type[Settings]) -> list[tuple[tuple[str, ...], Any]]:
    """Accepted values of the settings of a class, each with its path."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, one in settings_of(cls).items():
        if one.of is not None:
            found += [((name, *path), value) for path, value in written_values(one.of)]
        else:
            written: list[Any] = [*one.choices, *OF_KIND.get(one.kind, ()), *WRITTEN.get(name, ())]
            found += [((name,), value) for value in written if is_accepted(cls, {name: value})]
    return found


WRITTEN_VALUES: dict[type[Settings], list[tuple[tuple[str, ...], Any]]] = {}
"""By class, of those that have been asked for."""


@pytest.mark.medium
@pytest.mark.parametrize("cls", REQUESTS)
@given(st.data())
def test_property_another_process_reads_the_same_settings(cls: type[Settings], data: st.DataObject) -> None:
    values: dict[str, Any] = {}
    if cls not in WRITTEN_VALUES:
        WRITTEN_VALUES[cls] = written_values(cls)
    for path, value in data.draw(st.lists(st.sampled_from(WRITTEN_VALUES[cls]), max_size=8)):
        inner = functools.reduce(lambda group, name: group.setdefault(name, {}), path[:-1], values)
        inner[path[-1]] = value
    found = cls.parse_some(values)
    written = json.dumps(found.given_values())
    assert cls.parse_some(json.loads(written)) == found
    assert cls.parse_some(json.loads(written, parse_int=float)) == found, "as Kubeflow Pipelines passes numbers"
    assert cls.parse_some(found) == found
