"""One line gives a user's pipeline the exit handler of the shipped ones."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.on_first_use import OnFirstUse

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
