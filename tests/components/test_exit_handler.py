"""One line gives a user's pipeline the exit handler of the shipped ones."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.on_first_use import OnFirstUse

from trainwright.steps.training.kfp_parameters import place_of

compiler = OnFirstUse("kfp.compiler")
dsl = OnFirstUse("kfp.dsl")
shipped = OnFirstUse("trainwright.components")

pytestmark = pytest.mark.medium


def own_pipeline() -> Any:
    @dsl.pipeline(name="own")
    def own(on_cancel: str = "suspend") -> None:
        with shipped.trainwright_exit_handler(on_failure=on_cancel):
            shipped.train(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, command=["true"])

    return own


def test_a_pipeline_gets_its_exit_handler_by_one_line(tmp_path: Path) -> None:
    compiler.Compiler().compile(own_pipeline(), str(tmp_path / "p.yaml"))
    spec = next(iter(yaml.safe_load_all((tmp_path / "p.yaml").read_text("utf-8"))))
    root = spec["root"]["dag"]["tasks"]
    assert root["clean-up"]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert root["clean-up"]["dependentTasks"] == ["exit-handler-1"]
    assert root["exit-handler-1"]["taskInfo"]["name"] == "training"
    given = root["clean-up"]["inputs"]["parameters"]
    assert given["pipeline_run_id"] == {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}
    assert given["on_failure"] == {"componentInputParameter": "on_cancel"}
    assert not root["clean-up"].get("cachingOptions", {}).get("enableCache")


@pytest.mark.parametrize(
    ("training", "mode", "on_cancel"),
    [
        ({"submission_mode": "jobset", "ending": {"on_cancel": "delete"}}, "jobset", "delete"),
        ({"submission_mode": "jobset", "ending": {"on_cancl": "keep"}}, "jobset", "suspend"),
        (
            {"placement": {"mode": "x"}, "submission_mode": {"trainwright.dev/type": "str", "value": "jobset"}},
            "jobset",
            "suspend",
        ),
        ({}, "", "suspend"),
    ],
    ids=["settings", "invalid ending", "marked", "none"],
)
def test_clean_up_looks_where_the_training_ran(training: dict[str, Any], mode: str, on_cancel: str) -> None:
    place, ending = place_of(training)
    assert (place.submission_mode, ending.on_cancel) == (mode, on_cancel)
