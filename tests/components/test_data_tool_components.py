"""The components hand their parameters to DVC and Ray, and their results to the next step."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages

from trainwright.tools import ToolUnavailable, tool_environment
from trainwright.tools.dvc_data import dvc_requirements
from trainwright.tools.ray_preprocess import ray_requirements
from trainwright.workspace import read_run

shipped = OnFirstUse("trainwright.components")
require_packages("kfp")


def artifact(path: Path) -> SimpleNamespace:
    return SimpleNamespace(path=str(path), metadata={})


def test_a_missing_source_ends_the_step_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        shipped.pull_dvc_data.python_func(data=artifact(tmp_path / "data"), workspace_path=str(tmp_path))
    assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        shipped.preprocess_dataset.python_func(
            data_uri="nothing", dataset=artifact(tmp_path / "data"), workspace_path=str(tmp_path)
        )
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines() == ["source: required without repo", "'nothing': no such file or folder"]


def test_a_tool_that_cannot_be_installed_ends_the_step_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRAINWRIGHT_TOOLS", str(tmp_path / "file" / "tools"))
    monkeypatch.setattr("trainwright.tools.environment.is_installed", lambda _: False)
    with pytest.raises(SystemExit):
        shipped.pull_dvc_data.python_func(data=artifact(tmp_path / "data"), source="/data", workspace_path=str(tmp_path / "w"))
    assert "set TRAINWRIGHT_TOOLS to a folder on a larger disk" in capsys.readouterr().err


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_data_goes_from_a_source_through_dvc_and_ray_to_a_prepared_dataset(tmp_path: Path) -> None:
    try:
        tool_environment(dvc_requirements(), name="dvc")
        tool_environment(ray_requirements(), name="ray")
    except ToolUnavailable as error:
        pytest.skip(str(error))
    source, workspace = tmp_path / "source.jsonl", str(tmp_path / "workspace")
    rows = [{"question": f" What is {number} ?", "answer": str(number)} for number in (*range(20), *range(5))]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = {"workspace_path": workspace, "run_id": "first"}
    pulled = artifact(tmp_path / "pulled")
    data_uri, digest, revision, md5, size = shipped.pull_dvc_data.python_func(data=pulled, source=str(source), **common)
    assert (revision, len(md5), size) == ("", 32, source.stat().st_size)
    assert json.loads(Path(pulled.path).read_text())["files"][0]["path"] == "source.jsonl"
    clean = artifact(tmp_path / "clean")
    columns = {"prompt": "question", "completion": "answer"}
    clean_uri, clean_digest, rows_in, rows_out, dropped = shipped.preprocess_dataset.python_func(
        data_uri=data_uri, dataset=clean, columns=columns, **common
    )
    assert (rows_in, rows_out, dropped) == (25, 20, {"duplicate": 5})
    made = artifact(tmp_path / "dataset")
    pages = {name: artifact(tmp_path / name) for name in ("report", "report_page")}
    _, train_rows, test_rows = shipped.initialize_dataset.python_func(dataset_uri=clean_uri, dataset=made, **pages, **common)
    assert train_rows + test_rows == 20
    record = read_run(Path(workspace) / "runs" / "first")
    assert record is not None
    assert (record.inputs["dvc"]["md5"], record.inputs["dvc"]["digest"]) == (md5, digest)
    assert record.inputs["preprocessed"]["digest"] == clean_digest
    assert (Path(workspace) / record.inputs["preprocessed"]["folder"]).is_dir()
    assert record.dataset
