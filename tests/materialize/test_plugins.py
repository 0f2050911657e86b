"""A policy of a third party takes part in materialization, and what is none is named."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
from built_objects import env, refused
from factories import runtime, trainjob
from installed_policies import GREETING

from trainwright.api.errors import ApiError
from trainwright.materialize import materialize
from trainwright.materialize.draft import Draft
from trainwright.materialize.plugins import GROUP


class Nothing:
    pass


def test_an_installed_policy_takes_part(installed: list[EntryPoint]) -> None:
    installed.append(GREETING)
    built = materialize(trainjob(trainer={}), runtime(policy={"torch": {}}))
    assert list(env(built))[-1] == "GREETING"
    assert env(built)["GREETING"] == "demo"


def test_entry_points_other_than_policies_are_named(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("nothing", f"{__name__}:Nothing", GROUP))
    with pytest.raises(TypeError, match=f"entry point nothing = {__name__}:Nothing of {GROUP} is not a policy"):
        materialize(trainjob(trainer={}), runtime(policy={"torch": {}}))


class Broken:
    name = "broken"

    def enforce_pod_spec(self, draft: Draft) -> None:
        raise KeyError("volumes")


def test_a_plugin_that_raises_is_named(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("broken", f"{__name__}:Broken", GROUP))
    with pytest.raises(
        ApiError, match=r"plugin 'broken' failed in phase enforce_pod_spec for TrainJob default/demo: KeyError: 'volumes'"
    ):
        materialize(trainjob(trainer={}), runtime(policy={"torch": {}}))


@pytest.fixture
def documented(installed: list[EntryPoint], monkeypatch: pytest.MonkeyPatch) -> None:
    """The worked example of docs/plugins.md, installed."""
    page = (Path(__file__).parents[2] / "docs/plugins.md").read_text("utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    module = ModuleType("documented_policy")
    exec(compile(code[1], "docs/plugins.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "documented_policy", module)
    installed.append(EntryPoint("our-tensorflow", "documented_policy:TensorFlowPolicy", GROUP))


@pytest.mark.usefixtures("documented")
def test_the_worked_example_sets_tf_config_by_the_framework_label() -> None:
    tensorflow = runtime(policy={})
    tensorflow["metadata"]["labels"] = {"trainer.kubeflow.org/framework": "our-tensorflow"}
    text = env(materialize(trainjob(trainer={"numNodes": 2}), tensorflow))["TF_CONFIG"].replace("$(TF_INDEX)", "1")
    hosts = ["demo-node-0-0.demo:29500", "demo-node-0-1.demo:29500"]
    assert json.loads(text) == {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 1}}
    assert "TF_CONFIG" not in env(materialize(trainjob(trainer={"numNodes": 2}), runtime(policy={})))
    assert refused({"env": [{"name": "TF_CONFIG", "value": "x"}]}, tensorflow) == {"spec.trainer.env"}
