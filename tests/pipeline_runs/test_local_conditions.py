"""Conditions on outputs of tasks, as kfp's local runner resolves them."""

from __future__ import annotations

import logging

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.local_conditions import unresolved_conditions, with_conditions

CONDITION = "inputs.parameter_values['pipelinechannel--{}'] > 0.5 && inputs.parameter_values['pipelinechannel--n'] == 1"


def test_output_in_a_condition_is_named_by_its_task() -> None:
    output = {"taskOutputParameter": {"producerTask": "fit", "outputParameterKey": "loss"}}
    task = {
        "componentRef": {"name": "comp-condition-1"},
        "inputs": {"parameters": {"pipelinechannel--fit-loss": output, "pipelinechannel--n": {"componentInputParameter": "n"}}},
        "triggerPolicy": {"condition": CONDITION.format("fit-loss")},
    }
    spec = {
        "pipelineInfo": {"name": "p"},
        "root": {"dag": {"tasks": {"condition-1": task}}},
        "deploymentSpec": {"executors": {}},
        "schemaVersion": "2.1.0",
    }
    found = with_conditions(CompiledPipeline((spec,))).documents[0]["root"]["dag"]["tasks"]["condition-1"]["triggerPolicy"]
    assert found["condition"] == CONDITION.format("fit--loss")


def test_warnings_about_conditions_are_collected_once() -> None:
    with unresolved_conditions() as unresolved:
        for message in ("Could not resolve CEL parameter: x", "something else", "Could not resolve CEL parameter: x"):
            logging.getLogger().warning(message)
    logging.getLogger().warning("Condition evaluation failed: later")
    assert unresolved == ["Could not resolve CEL parameter: x"]
