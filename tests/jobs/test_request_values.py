"""A request from what orchestrators hand on: zeros and empty texts for nothing, floats for integers, JSON or YAML for objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import train_request
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.errors import ApiError
from trainwright.jobs import TrainRequest
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.setting import options_of, paths_of
from trainwright.jobs.request.setting_values import floats_to_integers, parse_structure, parse_text

MANIFEST = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "mine", "namespace": "team", "labels": {"a": "b"}, "uid": "x"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["true"], "numNodes": 2}},
}
PATHS = paths_of(TrainRequest)
"""Of the settings, by name."""


def test_empty_values_are_the_defaults() -> None:
    empty = {"text": "", "object": {}, "list": [], "function": "", "manifest": "", "integer": 0, "seconds": ""}
    given_ = {name: one.default or empty.get(one.kind, one.default) for name, one in options_of(TrainRequest).items()}
    assert train_request(**given_) == TrainRequest()
    assert train_request(**dict.fromkeys(PATHS)) == TrainRequest()
    texts = [name for name, one in options_of(TrainRequest).items() if one.kind != "text" or one.choices or not one.default]
    assert train_request(**dict.fromkeys(texts, "")) == TrainRequest()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"num_nodes": -1}, "num_nodes"),
        ({"num_nodes": 1.5}, "num_nodes"),
        ({"num_nodes": "two"}, "num_nodes"),
        ({"log_bytes": -1}, "logging.log_bytes"),
        ({"preemption_budget": "many"}, "limits.preemption_budget"),
        ({"command": "python train.py"}, "command"),
        ({"command": {"a": "b"}}, "command"),
        ({"args": ["a", {}]}, "args.1"),
        ({"env": ["A=1"]}, "env"),
        ({"env": "A=1"}, "env"),
        ({"env": "{A: ["}, "env"),
        ({"env": {"A": 1}}, "env.A.str"),
        ({"env": {"A": {"value": "x"}}}, "env"),
        ({"labels": "- a"}, "labels"),
        ({"runtime_kind": "Runtime"}, "placement.runtime_kind"),
        ({"on_cancel": "stop"}, "ending.on_cancel"),
        ({"resources_per_node": {"limits": {"cpu": 1}, "cpu": 2}}, "resources_per_node.cpu"),
        ({"resources_per_node": {"cpu": True}}, "resources_per_node.limits.cpu"),
        ({"settings": "text"}, "settings"),
        ({"settings": {1: 2}}, "settings"),
        ({"func_args": {"a": {2, 3}}}, "func_args"),
        ({"func_args": "{day: !!set {a}}"}, "func_args"),
        ({"func_args": "[" * 5000}, "func_args"),
        ({"func_args": json.loads("[" * 500 + "]" * 500)}, "func_args"),
        ({"tolerations": [{"key": "a", "operators": "Exist"}]}, "placement.tolerations[0].operators"),
        ({"workspace": "claim"}, "workspace"),
        ({"image": "two words"}, "image"),
        ({"dataset_digest": "abc"}, "dataset_digest"),
        ({"dataset_uri": "somewhere"}, "dataset_uri"),
        ({"topology": "near"}, "placement.topology"),
        ({"logs": "first"}, "logging.logs"),
        ({"resume": "yes"}, "resume"),
        ({"func": "def f(:"}, "func"),
        ({"manifest": "kind: Pod"}, "manifest"),
    ],
)
def test_a_wrong_value_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        train_request(**fields)
    assert field in [path for path, _ in raised.value.problems]


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ("!!bool x", "neither JSON nor YAML: line 1, column 1: a value of the type '!!bool'"),
        ("!!int ''", "neither JSON nor YAML"),
        ("!!int x", "neither JSON nor YAML"),
        ("*hf_abc", "neither JSON nor YAML"),
        ("!x y", "neither JSON nor YAML"),
        ("[", "neither JSON nor YAML: line 1, column 2: not JSON: "),
        ('[{"a": 1}, {"b": 2]', "neither JSON nor YAML: line 1, column 19: not JSON: Expecting ',' delimiter"),
        ("2026-99-99: {", "neither JSON nor YAML"),
        ("\0", r"U\+0000"),
        ("\ud800", r"U\+D800"),
        ("a: 1\n---\nb: 2", "expected one YAML document, found 2"),
        ('{"lr": NaN}', "line 1, column 8: a number that JSON does not support: NaN"),
        ('{"lr": 1, "lr": 2}', "line 1, column 11: duplicate key 'lr'"),
        ("lr: .inf", "a number that JSON does not support"),
        ("[" * 200_000, "more than 120 levels deep"),
        ("9" * 5_000, "too large"),
    ],
)
def test_odd_yaml_is_a_valueerror(odd: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_text(odd)


def test_whole_floats_are_integers_at_any_depth() -> None:
    value = {"a": 4.0, "b": [1.0, 2.5, {"c": -0.0, "d": (3.0,)}], "e": 1e300, "f": float("inf"), "g": True, "h": 2.0**53}
    expected = {"a": 4, "b": [1, 2.5, {"c": 0, "d": [3]}], "e": 1e300, "f": float("inf"), "g": True, "h": 2.0**53}
    assert floats_to_integers(value) == expected
    assert [type(one) for one in floats_to_integers([4.0, 1e300, True])] == [int, float, bool]
    assert parse_structure('{"a": [4.0]}') == {"a": [4]}
    request = train_request(settings={"peft_config": {"lora_rank": 8.0}}, runtime_patches=[{"manager": "a/b", "n": {"x": 1.0}}])
    assert json.dumps(request.settings) == '{"peft_config": {"lora_rank": 8}}'
    assert json.dumps(request.placement.runtime_patches[0]["n"]) == '{"x": 1}'


def test_a_manifest_as_object_text_or_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(MANIFEST))
    forms = [MANIFEST, json.dumps(MANIFEST), yaml.safe_dump(MANIFEST), str(path)]
    wanted = {**MANIFEST, "metadata": {"namespace": "team", "labels": {"a": "b"}}}
    for form in forms:
        request = train_request(manifest=form, runtime_kind="ClusterTrainingRuntime", num_nodes=0, env={})
        assert request.manifest == wanted
        assert (request.runtime_name, request.namespace) == ("torch-distributed", "team")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({**MANIFEST, "kind": "Pod"}, "expected one TrainJob, found Pod"),
        ({}, None),
        ("{}", "expected one TrainJob, found no kind"),
        ("---\n", "expected one TrainJob, found nothing"),
        (yaml.safe_dump_all([MANIFEST, MANIFEST]), "expected one TrainJob, found TrainJob, TrainJob"),
        ("nowhere/job.yaml", "nowhere/job.yaml: No such file or directory"),
        ("- a", "document 1 is a list, not an object"),
        ("a: [", "manifest:2:1: not YAML"),
        ({**MANIFEST, "spec": {}}, "runtimeRef"),
        ({**MANIFEST, "metadata": 3}, "metadata"),
        ({**MANIFEST, "specs": {}}, "specs"),
        (3, "expected an object, YAML text or a path, got int"),
        ([MANIFEST], "expected an object, YAML text or a path, got list"),
    ],
)
def test_invalid_manifests_are_refused(manifest: Any, words: str | None) -> None:
    if words is None:
        assert train_request(manifest=manifest).manifest is None
        return
    with pytest.raises(InvalidSettings, match=words) as raised:
        train_request(manifest=manifest)
    assert raised.value.problems[0][0] == "manifest"


@pytest.mark.parametrize(
    "both",
    [
        {"runtime": "trl-sft"},
        {"image": "a:1"},
        {"args": ["a"]},
        {"env": {"A": "1"}},
        {"num_nodes": 2},
        {"num_proc_per_node": 2},
        {"resources_per_node": {"cpu": 1}},
        {"settings": {"a": 1}},
        {"dataset_uri": "hf://a/b"},
        {"model_env": {"A": "1"}},
        {"dataset_secret": "a"},
    ],
)
def test_settings_of_the_manifest_are_refused_beside_it(both: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidSettings, match=f"{PATHS[next(iter(both))]}: cannot be combined with manifest; set it in the manifest"
    ):
        train_request(manifest=MANIFEST, **both)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"func": "def f(): ...", "code": "/x", "command": ["a"]}, "code: func and code are mutually exclusive"),
        ({"func": "def f(): ...", "builtin": "sft"}, "builtin: func and builtin are mutually exclusive"),
        ({"manifest": MANIFEST, "func": "def f(): ..."}, "manifest: func and manifest are mutually exclusive"),
        ({"func": "def f(): ...", "command": ["a"]}, "command: cannot be combined with func"),
        ({"func_args": {"a": 1}}, "func_args: requires func"),
        ({"packages_to_install": ["a"]}, "packages_to_install: requires func or code"),
        ({"pip_index_urls": ["https://a"], "command": ["a"]}, "pip_index_urls: requires func or code"),
        ({"code": "/x"}, "command: required with code"),
    ],
)
def test_one_thing_runs(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        train_request(**fields)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["{", "- a", "a: b", "[1]", "0", "!!int x", "def f(): ...", "auto"])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=8
)


@pytest.mark.medium
@given(st.dictionaries(st.sampled_from(sorted(PATHS)), JSON, max_size=4))
def test_garbage_is_refused_in_one_way(parameters: dict[str, Any]) -> None:
    try:
        request = train_request(**parameters)
    except (InvalidSettings, ApiError):
        return
    assert TrainRequest.parse(json.loads(json.dumps(request.given_values()))) == request
