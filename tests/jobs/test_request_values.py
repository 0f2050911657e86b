"""A request from what orchestrators hand on: zeros and empty texts for nothing, floats for integers, JSON or YAML for objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainwright.api.errors import ApiError
from trainwright.jobs import TrainRequest
from trainwright.jobs.request.setting_values import floats_to_integers, parse_structure, parse_text

MANIFEST = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "mine", "namespace": "team", "labels": {"a": "b"}, "uid": "x"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["true"], "numNodes": 2}},
}
FIELDS = sorted(TrainRequest.model_fields)


def made(**parameters: Any) -> TrainRequest:
    return TrainRequest.from_parameters(parameters)


def test_nothing_is_the_default() -> None:
    empty = {"str": "", "dict": {}, "list": [], "int": 0}
    kinds = {"num_nodes": "int", "num_proc_per_node": "int", "restarts": "int"} | {
        f"{what}_timeout_seconds": "int" for what in ("queue", "lost_node")
    }
    kept = (
        "start_timeout_seconds",
        "run_timeout_seconds",
        "fail_if_stuck",
        "fail_on_divergence",
        "runtime_kind",
        "logs",
        "log_bytes",
        "resume",
        "previous_jobs",
        "memory_check",
        "preemption_budget",
        "on_changed_request",
        "adopt_finished",
        "on_cancel",
        "waiter_lease_seconds",
    )
    parameters = {}
    for name, field in TrainRequest.model_fields.items():
        default = field.get_default()
        parameters[name] = (
            default if name in kept else empty[kinds.get(name, type(default).__name__ if default is not None else "str")]
        )
    assert TrainRequest.from_parameters(parameters) == TrainRequest()
    assert TrainRequest.from_parameters(dict.fromkeys(FIELDS)) == TrainRequest()
    texts = dict.fromkeys([name for name in FIELDS if name not in kept], "")
    assert TrainRequest.from_parameters(texts) == TrainRequest()
    assert TrainRequest.from_parameters({"run_id": "x", "namespace": "y"}) == TrainRequest(), "what it does not know is left out"


@pytest.mark.parametrize("number", [2, 2.0, "2"])
@pytest.mark.parametrize("name", ["num_nodes", "num_proc_per_node", "queue_timeout_seconds", "log_bytes", "preemption_budget"])
def test_numbers(name: str, number: Any) -> None:
    value = getattr(made(**{name: number}), name)
    assert (value, type(value)) == (2, int)


@pytest.mark.parametrize("zero", [0, 0.0, "0", "", None])
def test_zero_is_nothing(zero: Any) -> None:
    assert made(num_nodes=zero).num_nodes is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"num_nodes": -1}, "num_nodes"),
        ({"num_nodes": 1.5}, "num_nodes"),
        ({"num_nodes": "two"}, "num_nodes"),
        ({"log_bytes": -1}, "log_bytes"),
        ({"preemption_budget": "many"}, "preemption_budget"),
        ({"command": "python train.py"}, "command"),
        ({"command": {"a": "b"}}, "command"),
        ({"args": ["a", {}]}, "args.1"),
        ({"env": ["A=1"]}, "env"),
        ({"env": "A=1"}, "env"),
        ({"env": "{A: ["}, "env"),
        ({"env": {"A": 1}}, "env.A.str"),
        ({"env": {"A": {"value": "x"}}}, "env"),
        ({"labels": "- a"}, "labels"),
        ({"runtime_kind": "Runtime"}, "runtime_kind"),
        ({"on_cancel": "stop"}, "on_cancel"),
        ({"resources_per_node": {"limits": {"cpu": 1}, "cpu": 2}}, "resources_per_node.cpu"),
        ({"resources_per_node": {"cpu": True}}, "resources_per_node.limits.cpu"),
        ({"settings": "text"}, "settings"),
        ({"settings": {1: 2}}, "settings"),
        ({"func_args": {"a": {2, 3}}}, "func_args"),
        ({"func_args": "{day: !!set {a}}"}, "func_args"),
        ({"func_args": "[" * 5000}, "func_args"),
        ({"func_args": json.loads("[" * 500 + "]" * 500)}, "func_args"),
        ({"tolerations": [{"key": "a", "operators": "Exist"}]}, ""),
        ({"workspace": "claim"}, "workspace"),
        ({"image": "two words"}, "image"),
        ({"dataset_digest": "abc"}, "dataset_digest"),
        ({"dataset_uri": "somewhere"}, "dataset_uri"),
        ({"topology": "near"}, "topology"),
        ({"logs": "first"}, "logs"),
        ({"resume": "yes"}, "resume"),
        ({"func": "def f(:"}, "func"),
        ({"manifest": "kind: Pod"}, "manifest"),
    ],
)
def test_a_wrong_value_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as raised:
        made(**fields)
    assert field in [".".join(map(str, one["loc"])) for one in raised.value.errors()]


OBJECT = {"a": {"b": [1, 2.5, "x", None, True]}}


@pytest.mark.parametrize(
    "text", [json.dumps(OBJECT), json.dumps(OBJECT, indent=2), yaml.safe_dump(OBJECT), "a: {b: [1, 2.5, x, null, true]}"]
)
def test_objects_may_be_json_or_yaml(text: str) -> None:
    assert made(settings=text).settings == OBJECT


def test_lists_may_be_json_or_yaml() -> None:
    for text in ('["a", "b c"]', "- a\n- b c\n", "[a, b c]"):
        assert made(command=text).command == ["a", "b c"]


def test_dates_stay_text() -> None:
    assert made(func="def f(day): ...", func_args="{day: 2026-11-22}").func_args == {"day": "2026-11-22"}


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
    request = made(settings={"peft_config": {"lora_rank": 8.0}}, runtime_patches=[{"manager": "a/b", "n": {"x": 1.0}}])
    assert json.dumps(request.settings) == '{"peft_config": {"lora_rank": 8}}'
    assert json.dumps(request.runtime_patches[0]["n"]) == '{"x": 1}'


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"nvidia.com/gpu": 1.0, "cpu": 0.5}, {"nvidia.com/gpu": "1", "cpu": "0.5"}),
        ({"memory": "4Gi"}, {"memory": "4Gi"}),
        ('{"cpu": 2}', {"cpu": "2"}),
    ],
)
def test_resources_are_limits_and_requests(given_: Any, expected: dict[str, str]) -> None:
    assert made(resources_per_node=given_).resources_per_node == {"limits": expected, "requests": expected}


def test_resources_may_say_both() -> None:
    both = {"limits": {"cpu": 2.0}, "requests": {"cpu": 1}}
    assert made(resources_per_node=both).resources_per_node == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}
    assert made(resources_per_node={"limits": {"cpu": 2}}).resources_per_node == {"limits": {"cpu": "2"}}


def test_a_manifest_as_object_text_or_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(MANIFEST))
    forms = [MANIFEST, json.dumps(MANIFEST), yaml.safe_dump(MANIFEST), str(path)]
    wanted = {**MANIFEST, "metadata": {"namespace": "team", "labels": {"a": "b"}}}
    for form in forms:
        request = made(manifest=form, runtime_kind="ClusterTrainingRuntime", num_nodes=0, env={})
        assert request.manifest == wanted
        assert (request.runtime_name, request.namespace) == ("torch-distributed", "team")


@pytest.mark.parametrize("as_text", [False, True])
def test_a_manifest_with_whole_floats(as_text: bool) -> None:
    spec = {**MANIFEST["spec"], "trainer": {"numNodes": 2.0}}  # type: ignore[dict-item]
    manifest: Any = {**MANIFEST, "spec": spec}
    request = made(manifest=json.dumps(manifest) if as_text else manifest)
    assert request.manifest is not None
    assert json.dumps(request.manifest["spec"]["trainer"]) == '{"numNodes": 2}'


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
def test_what_is_no_manifest_is_refused(manifest: Any, words: str | None) -> None:
    if words is None:
        assert made(manifest=manifest).manifest is None
        return
    with pytest.raises(ValidationError, match=words) as raised:
        made(manifest=manifest)
    assert raised.value.errors()[0]["loc"] == ("manifest",)


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
def test_what_a_manifest_says_itself_is_refused_beside_it(both: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=f"{next(iter(both))}: cannot be combined with manifest; set it in the manifest"):
        made(manifest=MANIFEST, **both)


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
    with pytest.raises(ValidationError, match=words):
        made(**fields)


@pytest.mark.parametrize(
    "allowed",
    [{"queue_name": "q"}, {"labels": {"c": "d"}}, {"run_timeout_seconds": 5}, {"workspace": "pvc://c"}, {"hub_secret": "s"}],
)
def test_what_a_manifest_does_not_say_may_stand_beside_it(allowed: dict[str, Any]) -> None:
    assert made(manifest=MANIFEST, **allowed).manifest is not None


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


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
def test_garbage_is_refused_in_one_way(parameters: dict[str, Any]) -> None:
    try:
        request = TrainRequest.from_parameters(parameters)
    except (ValidationError, ApiError):
        return
    json.dumps(request.model_dump(), sort_keys=True)


@pytest.mark.parametrize("given", [{"max_steps": 3}, {"num_nodes": "x"}, {"func_args": {"a": 1}}])
def test_errors_are_in_plain_words_in_python_too(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        TrainRequest(**given)
    assert "pydantic" not in str(raised.value)
    assert "Value error" not in str(raised.value)
