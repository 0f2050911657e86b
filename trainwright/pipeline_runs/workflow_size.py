"""How large the workflow of a run becomes: a cluster refuses one of 3 MB, and its run then fails while its steps go on. Pure.

Argo keeps a node in the workflow for each pod, with its inputs and outputs. Those of a step of Kubeflow Pipelines have the compiled
component, its container and the input of its executor, several times and as texts inside texts. The numbers were compared with a
server of Kubeflow Pipelines 2.17 and Argo 4.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.text.foreign_texts import one_line

LIMIT = 3 * 1024 * 1024
"""Bytes of a request to an API server."""
SHOWN = 1024 * 1024
"""Bytes above which Argo compresses the nodes, and the server of Kubeflow Pipelines does not read them."""
_NODES_OF_POD = 2
"""With `templateDefaults.retryStrategy`, as Kubeflow Pipelines installs Argo, a second node wraps that of every pod."""
_NODE = 1300
"""Bytes of a node without inputs and outputs: names, times, the pod's resources."""
_VALUE, _OBJECT = "x" * 40, {f"setting_{number}": {"value": "x" * 10} for number in range(20)}
"""For a value that only a run knows: 700 bytes for an object, as the run of `finetune` has with a dozen settings."""
_TASK_CONFIG = "TASK_CONFIG"
"""An input with what is set on the task, for the job of a training."""
_URI = f"minio://mlpipeline/v2/artifacts/{'x' * 120}/"


@dataclass(frozen=True)
class _Loop:
    """A loop whose length is known, with the bytes of all its iterations."""

    name: str
    length: int
    size: int


def size_warnings(pipeline: CompiledPipeline, values: Mapping[str, Any] = {}) -> list[str]:
    """Return a warning if the workflow of a run cannot have all its nodes, or its tasks are not seen.

    Loops whose length only the run knows count once.
    `values` are the parameters of a run; without them, the defaults of the pipeline count.
    """
    size, loops = _Measured(pipeline).workflow(values)
    if size <= SHOWN:
        return []
    largest = max(loops, key=lambda loop: loop.size, default=None)
    cause = f", {largest.size / 1e6:.1f} MB of it the {largest.length} iterations of {one_line(largest.name)}" if largest else ""
    advice = "; use several runs with fewer iterations each" if largest else ""
    if size > LIMIT:
        end = f"a cluster takes {LIMIT / 1e6:.1f} MB: the run fails before its end, and jobs that it has started go on"
    else:
        end = f"above {SHOWN / 1e6:.1f} MB the server shows no change of its tasks, in a run that has ended too"
    return [f"the workflow of a run grows to about {size / 1e6:.1f} MB{cause}; {end}{advice}"]


def workflow_bytes(pipeline: CompiledPipeline, values: Mapping[str, Any] = {}) -> int:
    """Return about how many bytes the workflow of a run has at its end."""
    return _Measured(pipeline).workflow(values)[0]


class _Measured:
    def __init__(self, pipeline: CompiledPipeline):
        self._pipeline, self._spec = pipeline, pipeline.documents[0]
        platform = pipeline.documents[1] if len(pipeline.documents) > 1 else {}
        of_kubernetes = platform.get("platforms", {}).get("kubernetes", {})
        self._executors: Obj = self._spec["deploymentSpec"].get("executors", {})
        self._settings: Obj = of_kubernetes.get("deploymentSpec", {}).get("executors", {})

    def workflow(self, values: Mapping[str, Any]) -> tuple[int, list[_Loop]]:
        """Return the bytes of the whole workflow, and its loops."""
        loops: list[_Loop] = []
        root = self._spec["root"]
        nodes = _of_driver(root) + self._group(root, {**_defaults(root), **values}, loops)
        return _as_text(self._spec) + nodes, loops

    def _group(self, component: Obj, values: Mapping[str, Any], loops: list[_Loop]) -> int:
        return sum(self._task(name, task, values, loops) for name, task in component.get("dag", {}).get("tasks", {}).items())

    def _task(self, name: str, task: Obj, values: Mapping[str, Any], loops: list[_Loop]) -> int:
        component = self._pipeline.component_of(task)
        given = dict(_known(task, values))
        if "dag" not in component:
            defaults = {name: value for name, value in _defaults(component).items() if name not in _given(task)}
            return self._step(component, task, {**defaults, **given})
        size = _of_driver(component, task) + self._group(component, given, loops)
        if (length := _length(task, given)) is None:
            return size
        loops.append(_Loop(name, length, size * length))
        return _of_driver(component, task) + size * length

    def _step(self, component: Obj, task: Obj, values: Mapping[str, Any]) -> int:
        """Return the bytes of the nodes of a step: its driver has made the changes of the pod that its executor gets."""
        label = component.get("executorLabel", "")
        container, settings = self._executors.get(label, {}).get("container", {}), self._settings.get(label, {})
        variables = [*_variables(settings)]
        configs = {name: variables for name, about in _parameters(component).items() if about["parameterType"] == _TASK_CONFIG}
        patch = _as_text({**_pod_patch(component, container, {**values, **configs}), "env": variables})
        return _of_driver(component, task, container, settings, more=patch) + _NODES_OF_POD * (_NODE + patch)


def _of_driver(*inputs: Obj, more: int = 0) -> int:
    return _NODES_OF_POD * (_NODE + sum(map(_as_text, inputs)) + more)


def _pod_patch(component: Obj, container: Obj, values: Mapping[str, Any]) -> Obj:
    """Return what the driver sets in the pod: the launcher's command has the component and the executor's input as texts."""
    outputs = component.get("outputDefinitions", {})
    executor_input = {
        "inputs": {
            "parameterValues": {
                name: values.get(name, _OBJECT if about["parameterType"] == "STRUCT" else _VALUE)
                for name, about in _parameters(component).items()
            }
        },
        "outputs": {
            "parameters": {name: {"outputFile": f"/tmp/kfp/outputs/{name}"} for name in outputs.get("parameters", {})},  # noqa: S108
            "artifacts": {
                name: {"artifacts": [{"name": name, "type": about["artifactType"], "uri": _URI + name, "metadata": {}}]}
                for name, about in outputs.get("artifacts", {}).items()
            },
        },
    }
    launcher = ["--component_spec", _json(component), "--executor_input", _json(executor_input)]
    words = [*container.get("command", []), *container.get("args", [])]
    return {"containers": [{"name": "main", "image": container.get("image", ""), "command": launcher, "args": words}]}


def _variables(settings: Obj) -> Iterator[Obj]:
    """Yield the variables from Secrets, of which the bundled pipelines set more than a dozen on each step."""
    for secret in settings.get("secretAsEnv", []):
        for one in secret.get("keyToEnv", []):
            key = {"key": one.get("secretKey"), "name": "trainwright-store", "optional": True}
            yield {"name": one.get("envVar"), "valueFrom": {"secretKeyRef": key}}


def _parameters(component: Obj) -> Obj:
    found: Obj = component.get("inputDefinitions", {}).get("parameters", {})
    return found


def _defaults(component: Obj) -> dict[str, Any]:
    return {name: about["defaultValue"] for name, about in _parameters(component).items() if "defaultValue" in about}


def _given(task: Obj) -> Obj:
    found: Obj = task.get("inputs", {}).get("parameters", {})
    return found


def _known(task: Obj, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the inputs of a task whose values are known before the run."""
    for name, given in _given(task).items():
        if given.get("componentInputParameter") in values:
            yield name, values[given["componentInputParameter"]]
        elif "constant" in given.get("runtimeValue", {}):
            yield name, given["runtimeValue"]["constant"]


def _length(task: Obj, given: Mapping[str, Any]) -> int | None:
    """Return the number of iterations of a loop; None for another group, and where only the run knows it."""
    items = task.get("parameterIterator", {}).get("items", {})
    found = json.loads(items["raw"]) if items.get("raw") else given.get(items.get("inputParameter"))
    return len(found) if isinstance(found, list) else None


def _as_text(value: Any) -> int:
    """Return the bytes of a value that is a text in a JSON document, as its JSON."""
    return len(json.dumps(_json(value), ensure_ascii=False).encode())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
