"""Answers are read under the names of kfp's client, for every message of the API that the product reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from servers.kfp_messages import unknown_keys, wire_key

from trainwright.pipeline_runs.messages import read_message

_MODEL = re.compile(r'"(V2beta1\w+)"')
READ = sorted({model for file in Path("trainwright/pipeline_runs").glob("*.py") for model in _MODEL.findall(file.read_text())})


def test_keys_of_the_wire_are_read_as_attributes_at_any_depth() -> None:
    answer = {"recurringRuns": [{"display_name": "nightly", "runtime_config": {"parameters": {"recurringRuns": 1}}}], "new": 2}
    assert read_message(answer, "V2beta1ListRecurringRunsResponse") == {
        "recurring_runs": [{"display_name": "nightly", "runtime_config": {"parameters": {"recurringRuns": 1}}}],
        "new": 2,
    }
    with pytest.raises(AttributeError):
        read_message({}, "V2beta1Nothing")


@pytest.mark.parametrize("model", READ)
def test_every_key_of_a_model_is_read_as_its_attribute(model: str) -> None:
    from kfp_server_api import models

    keys = getattr(models, model).attribute_map
    assert read_message(dict.fromkeys(keys.values()), model) == dict.fromkeys(keys)


def test_unknown_keys_of_the_stand_in_are_found_at_any_depth() -> None:
    assert wire_key("V2beta1ListRecurringRunsResponse", "recurring_runs") == "recurringRuns"
    answer = {"recurring_runs": [], "recurringRuns": [{"mode": "ENABLE", "trigger": {"cron": "* * * * * *"}}]}
    assert list(unknown_keys(answer, "V2beta1ListRecurringRunsResponse")) == [
        "recurring_runs of V2beta1ListRecurringRunsResponse",
        "recurringRuns[0].trigger.cron of V2beta1Trigger",
    ]
