"""A real training with TRL starts from exported weights: its first loss is theirs, its steps and its learning rate start again.

The training whose weights these are is also compared with that of the scripted trainer, which many tests use in the place of TRL.
"""

from __future__ import annotations

import ast
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.scripted_image import TRAINER
from support.trl_run import EXPORTED, Run

from trainwright.checkpoints import find_checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Trained:
    """A training that has ended: what it printed, and what it reported to the server of a cluster, in order."""

    run: Run
    printed: str
    reports: list[dict[str, Any]]


@contextmanager
def report_server(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[list[dict[str, Any]]]:
    """Takes reports of progress, as the API server of a cluster does; trainings find it in the environment."""
    taken: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Authorization"] == "Bearer token"
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["trainerStatus"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    (folder / "token").write_text("token")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        patch.setenv("KUBEFLOW_TRAINER_SERVER_URL", f"http://127.0.0.1:{server.server_port}/status")
        patch.setenv("KUBEFLOW_TRAINER_SERVER_TOKEN", str(folder / "token"))
        yield taken
        server.shutdown()


@pytest.fixture(scope="module")
def base(tiny_model: Path) -> Path:
    return tiny_model


def train(folder: Path, base: Path, method: str, *program: Path) -> Trained:
    with pytest.MonkeyPatch.context() as patch, report_server(patch, folder) as reports:
        run = Run(folder / "run", base, patch, program=program)
        printed = run.train(method=method, eval_strategy="steps", eval_steps=EXPORTED)
    return Trained(run, printed, reports)


@pytest.fixture(scope="module", params=["lora", "full"])
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def first(method: str, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp(f"first-{method}"), base, method)


def test_scripted_trainer_writes_and_reports_like_trl(method: str, first: Trained, base: Path, tmp_path: Path) -> None:
    scripted = train(tmp_path, base, method, TRAINER)
    assert files_of(scripted.run.output) == files_of(first.run.output)
    for found in (first, scripted):
        assert [(each.step, each.incomplete) for each in find_checkpoints(found.run.output)] == [(6, ""), (7, "")]
    assert entries_of(scripted) == entries_of(first)
    assert lines_of(scripted.printed) == lines_of(first.printed)
    assert [progress(report) for report in ends_of(scripted)] == [progress(report) for report in ends_of(first)]


def files_of(output: Path) -> list[str]:
    return sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())


def entries_of(trained: Trained) -> list[dict[str, Any]]:
    """The history of the last checkpoint, the types in the place of the figures."""
    state = json.loads((trained.run.output / "checkpoint-7" / "trainer_state.json").read_bytes())
    return [{name: type(value) if name != "step" else value for name, value in entry.items()} for entry in state["log_history"]]


def lines_of(printed: str) -> list[set[str]]:
    """The names of the figures printed for each step, and the beginnings of the last lines."""
    figures = [set(ast.literal_eval(line)) for line in printed.splitlines() if line.startswith("{'")]
    return [
        *figures,
        {word for word in ("trainwright-history 1/1 ", "✅ Training completed.", "💾 Model saved to ") if word in printed},
    ]


def ends_of(trained: Trained) -> list[dict[str, Any]]:
    """The first report and the last: how many there are between them depends on the time that the training takes."""
    return [trained.reports[0], trained.reports[-1]]


def progress(report: dict[str, Any]) -> tuple[int, set[str], dict[str, str]]:
    """The percentage, the names of the metrics, and those that count steps."""
    metrics = {entry["name"]: entry["value"] for entry in report["metrics"]}
    return (
        report["progressPercentage"],
        set(metrics),
        {name: value for name, value in metrics.items() if re.search("step$|steps$", name)},
    )


def test_the_first_loss_is_that_of_the_exported_weights(
    tmp_path: Path, base: Path, method: str, first: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, history = first.run.export(), first.run.history(EXPORTED + 1)
    from_base, of_the_export = history[0]["loss"], history[EXPORTED]["loss"]
    assert of_the_export < from_base - 0.1
    second = Run(tmp_path / "second", base, monkeypatch)
    printed = second.train(f"weights:{uri}", method=method, steps=3, save_steps=3)
    started = second.history(3)
    assert [entry["step"] for entry in started] == [1, 2, 3]
    assert started[0]["loss"] == pytest.approx(of_the_export, abs=2e-4)
    assert started[0]["learning_rate"] == history[0]["learning_rate"]
    assert f"of {uri}; training starts at step 0" in printed
    assert started[2]["loss"] < started[0]["loss"]
    # The same run again, as after a preemption: it resumes from its own checkpoint.
    printed = second.train(f"weights:{uri}", method=method, steps=4, save_steps=4)
    assert "training starts at step 0" not in printed
    assert second.history(4)[:3] == started
    assert [entry["step"] for entry in second.history(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("method", ["lora"], indirect=True)
def test_weights_that_do_not_fit_are_refused_before_the_first_step(
    tmp_path: Path, base: Path, first: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = first.run.export()
    second = Run(tmp_path / "second", base, monkeypatch)
    printed = second.train(f"weights:{uri}", expected=1, lora_rank=8, lora_alpha=16)
    assert f"cannot start from the weights of {uri}: the adapter does not fit" in printed
    assert "lora_alpha is 32 there and 16 here" in printed
    assert "other shapes (an adapter's rank is lora_rank): base_model." in printed
    printed = second.train(f"weights:{uri}", expected=1, method="full")
    assert "it is an adapter, but this run trains all weights; set method=lora" in printed
    assert not list(second.output.glob("checkpoint-*"))
