"""Integers inside text, in a run on this machine: kfp's local runner writes the integer 7 as "7.0", a server as "7".

It keeps integers that a component declares as inputs. So the values that a task puts into text are declared there, with their types.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline

_CHANNEL, _LOOP_ITEM, _INTEGER = "pipelinechannel--", "loop-item", "NUMBER_INTEGER"


def with_integers(pipeline: CompiledPipeline) -> CompiledPipeline:
    """Return the pipeline with the integers that tasks put into text as inputs of their components.

    Items of loops are left out: kfp takes their type from the first item, and would cut off the decimals of the others.
    """
    documents = copy.deepcopy(pipeline.documents)
    components: dict[str, Obj] = documents[0].get("components", {})
    found: dict[str, list[set[str]]] = {}
    for dag in (documents[0]["root"], *components.values()):
        for task in dag.get("dag", {}).get("tasks", {}).values():
            component = task.get("componentRef", {}).get("name", "")
            if "executorLabel" in components.get(component, {}):
                found.setdefault(component, []).append(_integers(task, dag, components))
    for name, integers in found.items():
        for integer in set.intersection(*integers):  # of all tasks with this component: a missing one would be an error
            parameters = components[name].setdefault("inputDefinitions", {}).setdefault("parameters", {})
            parameters.setdefault(integer, {"parameterType": _INTEGER, "isOptional": True})
    return replace(pipeline, documents=documents)


def _integers(task: Obj, dag: Obj, components: dict[str, Obj]) -> set[str]:
    inputs = task.get("inputs", {}).get("parameters", {})
    return {
        name
        for name, source in inputs.items()
        if name.startswith(_CHANNEL) and _LOOP_ITEM not in name and _type_of(source, dag, components) == _INTEGER
    }


def _type_of(source: Obj, dag: Obj, components: dict[str, Obj]) -> str:
    if "componentInputParameter" in source:
        declared, name = dag.get("inputDefinitions", {}), source["componentInputParameter"]
    else:
        output = source.get("taskOutputParameter", {})
        producer = dag["dag"]["tasks"].get(output.get("producerTask", ""), {}).get("componentRef", {}).get("name", "")
        declared, name = components.get(producer, {}).get("outputDefinitions", {}), output.get("outputParameterKey", "")
    return str(declared.get("parameters", {}).get(name, {}).get("parameterType", ""))
