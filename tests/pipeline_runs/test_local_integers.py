"""Integers that tasks put into text, as inputs of their components."""

from __future__ import annotations

from typing import Any

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.local_integers import with_integers

INTEGER, DOUBLE = {"parameterType": "NUMBER_INTEGER"}, {"parameterType": "NUMBER_DOUBLE"}


def inputs_of_component(*tasks: dict[str, Any]) -> dict[str, Any]:
    """The inputs of the component of these tasks, by what each passes to it."""
    spec = {
        "pipelineInfo": {"name": "p"},
        "root": {
            "inputDefinitions": {"parameters": {"n": INTEGER, "rate": DOUBLE}},
            "dag": {
                "tasks": {
                    "first": {"componentRef": {"name": "comp-first"}},
                    **{
                        f"say-{number}": {"componentRef": {"name": "comp-say"}, "inputs": {"parameters": parameters}}
                        for number, parameters in enumerate(tasks)
                    },
                }
            },
        },
        "components": {
            "comp-first": {"executorLabel": "exec-first", "outputDefinitions": {"parameters": {"Output": INTEGER}}},
            "comp-say": {"executorLabel": "exec-say"},
        },
        "deploymentSpec": {"executors": {}},
        "schemaVersion": "2.1.0",
    }
    component = with_integers(CompiledPipeline((spec,))).documents[0]["components"]["comp-say"]
    found: dict[str, Any] = component.get("inputDefinitions", {}).get("parameters", {})
    return found


def test_integer_of_a_parameter_or_a_task_is_an_input() -> None:
    output = {"taskOutputParameter": {"producerTask": "first", "outputParameterKey": "Output"}}
    passed = {
        "pipelinechannel--n": {"componentInputParameter": "n"},
        "pipelinechannel--first-Output": output,
        "pipelinechannel--rate": {"componentInputParameter": "rate"},
        "pipelinechannel--loop-item-param-1": {"componentInputParameter": "n"},
        "text": {"componentInputParameter": "n"},
    }
    declared = {"parameterType": "NUMBER_INTEGER", "isOptional": True}
    assert inputs_of_component(passed) == {"pipelinechannel--n": declared, "pipelinechannel--first-Output": declared}


def test_integer_that_another_task_of_the_component_lacks_is_not_an_input() -> None:
    assert inputs_of_component({"pipelinechannel--n": {"componentInputParameter": "n"}}, {}) == {}
