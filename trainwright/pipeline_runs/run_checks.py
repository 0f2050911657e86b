"""Finds what a server or a cluster would refuse, or get wrong without a word, before a compiled pipeline runs. Pure.

A cluster refuses a workflow of 3 MB, and its run then fails while its steps go on. Argo keeps a node in it for each pod, with its
inputs and outputs. Those of a step of Kubeflow Pipelines have the compiled component, its container and the input of its executor,
several times and as texts inside texts. The numbers were compared with a server of Kubeflow Pipelines 2.17 and Argo 4.0.

A server may take a step from its cache although its data has changed: components that were loaded from YAML cannot turn caching off
for their tasks; those of the Python package do.

A server does not carry all values as they are written. It puts a value that only a run knows into an object as text, without regard
to quotes, so that kfp's executor fails with JSONDecodeError before the program of the step begins; it keeps every number as a
double, as kfp's compiler does; and the arguments of its pods have all values, where Kubernetes makes `$$` a `$`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.api.objects import Obj
from trainwright.jobs.request.typed_parameters import LARGEST_INTEGER, has_doubled_dollar, has_large_integer
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadPipeline
from trainwright.pipeline_runs.local_values import texts_in
from trainwright.pipeline_runs.step_command import runner_arguments
from trainwright.text.foreign_texts import one_line

_RUN_ID = "run_id"
_PLACEHOLDER = "{{$."
_REFERENCE = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]")
_CHANNEL, _ITEM = "pipelinechannel--", "-loop-item"
_WORDS = {"STRING": "the text", "LIST": "the list", "STRUCT": "the object"}
"""Types whose values may contain a quote or a backslash. Items of a loop over values of unknown types are text to kfp."""
_FAILS = (
    "a quote or a backslash in it, such as every list of texts has, ends the step with JSONDecodeError on a server; make the whole "
    "object one pipeline parameter or task output, or the value an input"
)
_OF_TASK_SETTINGS = "task_settings"
"""Input of a training's task with what is set on the task: quantities, in which kfp itself allows no quotes."""
_INTEGER = "NUMBER_INTEGER"


def cacheable_steps(pipeline: CompiledPipeline, values: Mapping[str, Any] = {}) -> list[str]:
    """Return a warning for each step of Trainwright whose results would be those of an earlier run with the same `run_id`.

    `values` are the parameters of a run; without them, the defaults of the pipeline count.
    """
    spec = pipeline.documents[0]
    defaults = {name: parameter.default for name, parameter in pipeline.parameters.items()}
    found = []
    for component, name, task in pipeline.tasks():
        run_id = _constant(task, component is spec["root"], {**defaults, **values})
        if run_id and task.get("cachingOptions", {}).get("enableCache") and _is_ours(pipeline, task):
            found.append(
                f"{name}: cached with the constant run_id {run_id!r}: the next run returns the results of the first, even if the data "
                "has changed. Use dsl.PIPELINE_JOB_ID_PLACEHOLDER as run_id, or task.set_caching_options(False)"
            )
    return found


def _constant(task: Obj, is_at_top: bool, values: Mapping[str, Any]) -> str:
    """Return a run id that is the same in the next run; empty if it is another, or not known."""
    given = task.get("inputs", {}).get("parameters", {}).get(_RUN_ID, {})
    if parameter := given.get("componentInputParameter", ""):
        value = values.get(parameter) if is_at_top else None
    else:
        value = given.get("runtimeValue", {}).get("constant")
    return value if isinstance(value, str) and _PLACEHOLDER not in value else ""


def _is_ours(pipeline: CompiledPipeline, task: Obj) -> bool:
    executors = pipeline.documents[0]["deploymentSpec"].get("executors", {})
    container = executors.get(pipeline.component_of(task).get("executorLabel", ""), {}).get("container", {})
    return runner_arguments(container) is not None


def object_texts(pipeline: CompiledPipeline) -> list[str]:
    """Return a warning for each value inside an object or list of a task's input that may have quotes or backslashes."""
    found = []
    for component, name, task in pipeline.tasks():
        inputs = task.get("inputs", {}).get("parameters", {})
        for field, given in inputs.items():
            constant = given.get("runtimeValue", {}).get("constant")
            if field == _OF_TASK_SETTINGS or not isinstance(constant, dict | list):
                continue
            for reference in dict.fromkeys(_references(constant)):
                if words := _WORDS.get(_type_of(pipeline, component, inputs.get(reference) or {}, reference)):
                    found.append(f"{one_line(name)}: {words} {_source(inputs, reference)} inside {one_line(field)!r}: {_FAILS}")
    return found


def forgotten_values(pipeline: CompiledPipeline) -> list[str]:
    """Return a warning for each value that kfp's compiler does not hand to the group of tasks that needs it."""
    found = []
    for component, name, task in pipeline.tasks():
        declared = component.get("inputDefinitions", {})
        inputs = task.get("inputs", {})
        for kind, key in (("parameters", "componentInputParameter"), ("artifacts", "componentInputArtifact")):
            for given in inputs.get(kind, {}).values():
                if key in given and given[key] not in declared.get(kind, {}):
                    found.append(
                        f"{one_line(name)}: kfp's compiler does not hand {_value(given[key])} to the group of this task, so the "
                        "run fails on a server; pass it to a task of that group as a separate input, and not in a text or an object"
                    )
    return list(dict.fromkeys(found))


def doubled_dollars(pipeline: CompiledPipeline) -> list[str]:
    """Return a warning for each input of a task, and each default of a parameter, with `$$`."""
    arrives = "'$$' in it arrives as '$' on a server, where Kubernetes expands the arguments of pods"
    declared = pipeline.documents[0]["root"].get("inputDefinitions", {}).get("parameters", {})
    found = [
        f"the default of the parameter {one_line(name)!r}: {arrives}"
        for name, one in declared.items()
        if has_doubled_dollar(one.get("defaultValue"))
    ]
    for _, task_name, task in pipeline.tasks():
        for name, given in task.get("inputs", {}).get("parameters", {}).items():
            if has_doubled_dollar(given.get("runtimeValue", {}).get("constant")):
                found.append(f"{one_line(task_name)}: the input {one_line(name)!r}: {arrives}")
    return found


def _value(name: str) -> str:
    item, is_field, key = one_line(name).removeprefix(_CHANNEL).partition("-subvar-")
    if is_field:
        return f"the field {key!r} of a loop's item"
    return "the item of a loop" if "loop-item" in item else repr(item)


def check_integers(pipeline: CompiledPipeline) -> None:
    """Refuse integers that are 2**53 or above: what was written may have been another number. Raises BadPipeline naming each."""
    spec = pipeline.documents[0]
    problems = [
        f"the default of the parameter {one_line(name)!r}"
        for name, declared in spec["root"].get("inputDefinitions", {}).get("parameters", {}).items()
        if declared.get("parameterType") == _INTEGER and _is_large(declared.get("defaultValue"))
    ]
    for _, name, task in pipeline.tasks():
        declared = pipeline.component_of(task).get("inputDefinitions", {}).get("parameters", {})
        given = task.get("inputs", {}).get("parameters", {})
        problems += [
            f"the input {one_line(field)!r} of {one_line(name)}"
            for field in given.keys() & declared.keys()
            if declared[field].get("parameterType") == _INTEGER
            and _is_large(given[field].get("runtimeValue", {}).get("constant"))
        ]
        items = task.get("parameterIterator", {}).get("items", {}).get("raw")
        if items and has_large_integer(json.loads(items)):
            problems.append(f"an item of the loop {one_line(name)}")
    if problems:
        raise BadPipeline(
            f"{', '.join(sorted(problems))}: Kubeflow Pipelines keeps numbers as doubles, so an integer of 2**53 or above may arrive "
            "as another one; pass it as text, or as an argument of a function of @train_function, which keeps it"
        )


def _references(value: Any) -> Iterator[str]:
    """Yield the names of the inputs to which texts in a value refer."""
    for text in texts_in(value):
        yield from _REFERENCE.findall(text)


def _type_of(pipeline: CompiledPipeline, component: Obj, given: Obj, reference: str) -> str:
    """Return the type of a value that a task gets; STRING where the pipeline does not say it, as for the field of a loop's item."""
    if output := given.get("taskOutputParameter"):
        producer = component.get("dag", {}).get("tasks", {}).get(output.get("producerTask"))
        declared = pipeline.component_of(producer).get("outputDefinitions", {}) if producer else {}
        name = output.get("outputParameterKey")
    else:
        declared, name = component.get("inputDefinitions", {}), given.get("componentInputParameter", reference)
    return str(declared.get("parameters", {}).get(name, {}).get("parameterType", "STRING"))


def _source(inputs: Obj, reference: str) -> str:
    """Return the name of a value as a person wrote it."""
    given = inputs.get(reference) or {}
    if output := given.get("taskOutputParameter"):
        return repr(one_line(f"{output.get('producerTask')}.{output.get('outputParameterKey')}"))
    name = one_line(reference.removeprefix(_CHANNEL)).replace("-loop-item-subvar-", ".")
    return repr(name) if not name.endswith(_ITEM) else f"that is an item of {name.removesuffix(_ITEM)!r}"


def _is_large(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) >= LARGEST_INTEGER


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
