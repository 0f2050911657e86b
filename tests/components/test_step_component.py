"""Calls of components are checked when a pipeline is compiled, as far as their values are known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.on_first_use import OnFirstUse

from trainwright.jobs.credentials.secret_detection import LiteralSecret
from trainwright.jobs.request.invalid_settings import InvalidSettings

compiler = OnFirstUse("kfp.compiler")
dsl = OnFirstUse("kfp.dsl")
shipped = OnFirstUse("trainwright.components")
pytestmark = pytest.mark.medium

EVALUATED = {"checkpoint_uri": "s3://exports/a", "checkpoint_digest": "sha256:0"}
Call = Callable[[Any, Any, Any], object]


def task_of(call: Call) -> dict[str, Any]:
    """The inputs of the one task of a pipeline with a number, a list and an object as parameters."""
    found: list[Any] = []

    def pipeline(number: int = 3, words: list = [], options: dict = {}) -> None:  # noqa: B006
        found.append(call(number, words, options))

    dsl.pipeline(name="calls")(pipeline)
    inputs: dict[str, Any] = found[0]._inputs
    return inputs


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (
            lambda n, w, o: shipped.train(run=o, limits={"run_timeout": n}),
            "train(): limits.run_timeout: unknown; did you mean",
        ),
        (lambda n, w, o: shipped.train(run=o, limits={"restarts": "three"}), "train(): limits.restarts: expected a whole number"),
        (
            lambda n, w, o: shipped.train(run=o, ending={"on_cancel": "stop"}),
            "ending.on_cancel: expected suspend, delete or keep",
        ),
        (lambda n, w, o: shipped.submit_train_job(run=o, data={"workers": 2}), "submit-train-job(): data.workers: unknown"),
        (lambda n, w, o: shipped.wait_train_job(trainjob="j", logging={"log": 1}), "logging.log: unknown; did you mean logs?"),
        (
            lambda n, w, o: shipped.evaluate(run=o, harness={"few_shots": 3}, **EVALUATED),
            "evaluate(): harness.few_shots: unknown; did",
        ),
        (lambda n, w, o: shipped.train(), "train(): run_id: required: dsl.PIPELINE_JOB_ID_PLACEHOLDER"),
        (lambda n, w, o: shipped.submit_train_job(run_id=""), "submit-train-job(): run_id: required"),
        (lambda n, w, o: shipped.evaluate(**EVALUATED), "evaluate(): run_id: required"),
        (lambda n, w, o: shipped.export_checkpoint(export_uri="s3://exports"), "export-checkpoint(): run_id: required"),
        (lambda n, w, o: shipped.plan_trials(space=o), "plan-trials(): run_id: required"),
        (lambda n, w, o: shipped.pick_trial(outcomes=w), "pick-trial(): run_id: required"),
        (lambda n, w, o: shipped.initialize_dataset(run=o), "initialize-dataset(): dataset_uri: required, or source"),
    ],
)
def test_settings_that_the_step_would_refuse_are_refused_when_compiled(call: Call, problem: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        task_of(call)
    assert problem in str(raised.value)


TOKEN = "hf_" + "a" * 34
PASSWORD = "https://me:hunter2@host"


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda n, w, o: shipped.train(run=o, env={"HF_TOKEN": TOKEN}), "env.HF_TOKEN"),
        (lambda n, w, o: shipped.train(run=o, env={"A": n, "DB_PASSWORD": "hunter2"}), "env.DB_PASSWORD"),
        (lambda n, w, o: shipped.train(run=o, command=["x", f"--token={TOKEN}", n]), "command[1]"),
        (lambda n, w, o: shipped.train(run=o, args=[f"--n={n} --token={TOKEN}"]), "args[0]"),
        (lambda n, w, o: shipped.train(run=o, settings={"o": {"a": n, "token": TOKEN}}), "settings.o.token"),
        (lambda n, w, o: shipped.train(run=o, placement={"annotations": {"a": n, "b": TOKEN}}), "placement.annotations.b"),
        (
            lambda n, w, o: shipped.train(run=o, placement={"runtime_patches": [{"manager": n, "x": TOKEN}]}),
            "placement.runtime_patches[0].x",
        ),
        (lambda n, w, o: shipped.train(run={"run_id": "r", "training": {"env": {"A": TOKEN}}}), "run.training.env.A"),
        (lambda n, w, o: shipped.train(run=o, tracking=[f"mlflow:{PASSWORD}"]), "tracking[0]"),
        (lambda n, w, o: shipped.train(run=o, trial=f'{{"index": 0, "settings": {{"x": "{TOKEN}"}}}}'), "trial.settings.x"),
        (lambda n, w, o: shipped.train(run=o, namespace=TOKEN), "namespace"),
        (lambda n, w, o: shipped.train(run=o, labels={TOKEN: "a"}), "labels"),
        (lambda n, w, o: shipped.train(run=o, command=["x"]).set_env_variable("API_KEY", "hunter2"), "env.API_KEY"),
        (lambda n, w, o: shipped.start_run(workspace="w", training={"env": {"A": TOKEN, "B": n}}), "training.env.A"),
        (lambda n, w, o: shipped.start_run(workspace="w", data={"columns": {"a": TOKEN}}), "data.columns.a"),
        (lambda n, w, o: shipped.start_run(workspace="w", defaults={"env": {"A": TOKEN}}), "defaults.env.A"),
        (lambda n, w, o: shipped.evaluate(run=o, env={"A": n, "HF_TOKEN": TOKEN}, **EVALUATED), "env.HF_TOKEN"),
        (lambda n, w, o: shipped.plan_trials(run=o, trials=[{"hub_token": TOKEN}]), "trials[0].hub_token"),
        (lambda n, w, o: shipped.initialize_dataset(run=o, dataset_uri=f"{PASSWORD}/x.jsonl"), "dataset_uri"),
        (lambda n, w, o: shipped.pull_dvc_data(run=o, repo=f"{PASSWORD}/a", path="p"), "repo"),
        (
            lambda n, w, o: shipped.preprocess_dataset(run=o, data_uri="x", transform=f"def f(row):\n  return '{TOKEN}'"),
            "transform",
        ),
    ],
)
def test_credential_is_refused_before_it_is_part_of_a_compiled_pipeline(call: Call, path: str) -> None:
    with pytest.raises(LiteralSecret) as raised:
        task_of(call)
    assert raised.value.problems[0].field == path
    assert TOKEN not in str(raised.value)


def test_names_of_secrets_and_references_are_no_credentials() -> None:
    task_of(
        lambda n, w, o: shipped.train(
            run=o,
            secrets={"store_secret": "store-credentials", "hub_secret": "hub-token"},
            env={"HF_TOKEN": {"valueFrom": {"secretKeyRef": {"name": "hub-token", "key": "HF_TOKEN"}}}, "API_KEY": f"key-{n}"},
            dataset_digest="sha256:" + "ab" * 32,
        )
    )


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (
            lambda n, w, o: shipped.train(run=o, placement={"node_selector": o}),
            "placement.node_selector: 'options' is a dict",
        ),
        (lambda n, w, o: shipped.train(run=o, args=["--words", w]), "train(): args[1]: 'words' is a list"),
        (
            lambda n, w, o: shipped.evaluate(run=o, limits={"restarts": w}, **EVALUATED),
            "limits.restarts: 'words' is a list",
        ),
        (lambda n, w, o: shipped.start_run(workspace="w", training={"env": o}), "start-run(): training.env: 'options' is a dict"),
    ],
)
def test_structure_of_the_run_inside_an_object_is_refused_when_compiled(call: Call, where: str) -> None:
    with pytest.raises(TypeError, match="make the whole object one parameter of the pipeline") as raised:
        task_of(call)
    assert where in str(raised.value)


def test_scalars_of_the_run_inside_objects_are_marked_with_their_types() -> None:
    for call in (
        lambda n, w, o: shipped.train(run=o, limits={"restarts": n}),
        lambda n, w, o: shipped.evaluate(run=o, limits={"restarts": n}, **EVALUATED),
        lambda n, w, o: shipped.start_run(workspace="w", training={"limits": {"restarts": n}}),
    ):
        found = task_of(call)
        marked = found["limits"] if "limits" in found else found["training"]["limits"]
        assert marked["restarts"].keys() == {"trainwright.dev/type", "value"}
        assert marked["restarts"]["trainwright.dev/type"] == "int"


def test_groups_as_a_whole_and_placeholders_are_left_to_the_step(tmp_path: Path) -> None:
    @dsl.pipeline(name="whole")
    def pipeline(limits: dict, text: str) -> None:
        placement = {"queue_name": f"{text}-gpus", "annotations": {"run": dsl.PIPELINE_JOB_NAME_PLACEHOLDER}}
        shipped.train(run_id="r", limits=limits, placement=placement)

    compiler.Compiler().compile(pipeline, str(tmp_path / "p.yaml"))
    task = yaml.safe_load((tmp_path / "p.yaml").read_text("utf-8"))["root"]["dag"]["tasks"]["train"]["inputs"]["parameters"]
    assert task["limits"] == {"componentInputParameter": "limits"}
    assert task["placement"]["runtimeValue"]["constant"]["annotations"] == {"run": "{{$.pipeline_job_name}}"}
