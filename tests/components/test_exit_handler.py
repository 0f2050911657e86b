"""One line gives a user's pipeline the exit handler of the shipped ones."""

from pathlib import Path

import pytest
import yaml
from kfp import compiler, dsl

from trainwright.components import train, trainwright_exit_handler

pytestmark = pytest.mark.medium


@dsl.pipeline(name="own")
def own(on_cancel: str = "suspend") -> None:
    with trainwright_exit_handler(on_failure=on_cancel):
        train(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, command=["true"])


def test_a_pipeline_gets_its_exit_handler_by_one_line(tmp_path: Path) -> None:
    compiler.Compiler().compile(own, str(tmp_path / "p.yaml"))
    spec = next(iter(yaml.safe_load_all((tmp_path / "p.yaml").read_text("utf-8"))))
    root = spec["root"]["dag"]["tasks"]
    assert root["clean-up"]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert root["clean-up"]["dependentTasks"] == ["exit-handler-1"]
    assert root["exit-handler-1"]["taskInfo"]["name"] == "training"
    given = root["clean-up"]["inputs"]["parameters"]
    assert given["pipeline_run_id"] == {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}
    assert given["on_failure"] == {"componentInputParameter": "on_cancel"}
    assert not root["clean-up"].get("cachingOptions", {}).get("enableCache")
