"""Finds values of a compiled pipeline that a server of Kubeflow Pipelines does not carry as they are written. Pure.

It puts a value that only a run knows into an object as text, without regard to quotes, so that kfp's executor fails with
JSONDecodeError before the program of the step begins; it keeps every number as a double, as kfp's compiler does; and the arguments of
its pods have all values, where Kubernetes makes `$$` a `$`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.objects import Obj
from trainwright.jobs.request.typed_parameters import LARGEST_INTEGER, has_doubled_dollar, has_large_integer
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadPipeline
from trainwright.pipeline_runs.local_values import texts_in
from trainwright.text.foreign_texts import one_line

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
