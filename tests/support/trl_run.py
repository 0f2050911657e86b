"""A run of one of TRL's scripts with the tiny model, as the pods of the runtimes `trl-*` start it, but without a cluster.

Each batch is the whole dataset and nothing is random, so that the loss of a step depends on the weights alone.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trainwright.api import names
from trainwright.checkpoints.publish import export_checkpoint
from trainwright.jobs.trainers.sft import SftTrainer
from trainwright.jobs.trainers.trl import TrlTrainer
from trainwright.storage.uri import StorageUri

EXPORTED = 6
"""The step of the checkpoint that is exported."""
SFT = SftTrainer()
ROWS = [{"text": f"the ferry {word} leaves the harbour at {word}"} for word in ("one", "two", "three", "four")]
SETTINGS: dict[str, Any] = {
    "learning_rate": 3e-3,
    "batch_size": len(ROWS),
    "max_length": 64,
    "lora_rank": 4,
    "logging_steps": 1,
    "save_steps": EXPORTED,
    "steps": EXPORTED + 1,
    "cpu": True,
}


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


class Run:
    """A run on a volume of its own, whose pods do what those of the runtimes `trl-*` do."""

    def __init__(
        self,
        workspace: Path,
        base: Path,
        monkeypatch: pytest.MonkeyPatch,
        rows: Sequence[dict[str, Any]] = ROWS,
        trainer: TrlTrainer = SFT,
        program: Sequence[str | Path] = (),
    ) -> None:
        """`program`: words that take TRL's command line in its place, such as the path of the scripted trainer."""
        self.workspace, self.base, self.patch, self.trainer, self.program = workspace, base, monkeypatch, trainer, program
        (workspace / "dataset").mkdir(parents=True)
        for split in ("train", "test"):
            (workspace / "dataset" / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")

    def train(self, resume: str = "auto", expected: int = 0, **settings: Any) -> str:
        """Decide where to start, and train; what was printed."""
        folder = self.workspace / "resume"
        module = "trainwright.checkpoints.resume_point"
        files = ["--config", str(folder / "trl.yaml"), "--launcher", str(folder / "orderly_exit.py"), "--model", str(self.base)]
        with self.patch.context() as patched:
            patched.setattr(sys, "argv", [module, "--workspace", str(self.workspace), *files])
            patched.setenv(names.RESUME_VARIABLE, resume)
            patched.setenv(names.RESUME_JOB_VARIABLE, "uid")
            patched.setenv("TRAINJOB_NAME", "job")  # each training is that of a restarted pod
            patched.delitem(sys.modules, module, raising=False)
            with pytest.raises(SystemExit) as ended:
                runpy.run_module(module, run_name="__main__")
        assert ended.value.code == 0
        launched = [sys.executable, *self.program, str(folder / "orderly_exit.py")]
        command = [*launched, self.trainer.script, "--config", str(folder / "trl.yaml")]
        paths = {"model_name_or_path": self.base, "dataset_name": self.workspace / "dataset", "output_dir": self.output}
        words = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
        given = self.trainer.settings.model_validate({**SETTINGS, **settings})
        more = ["--report_to", "none", "--disable_tqdm", "True", "--logging_nan_inf_filter", "False", "--save_strategy", "steps"]
        if given.method != "full":
            more += ["--lora_dropout", "0"]
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "FORK_LAUNCHED": "1"}
        log = self.workspace / "log"
        with log.open("wb") as printed:
            status = subprocess.run(
                [*command, *words, *more, *given.arguments()], stdout=printed, stderr=subprocess.STDOUT, env=env, timeout=240
            ).returncode
        assert status == expected, log.read_text("utf-8", "replace")[-4000:]
        return log.read_text("utf-8", "replace")

    @property
    def output(self) -> Path:
        return self.workspace / "output"

    def history(self, step: int) -> list[dict[str, Any]]:
        """What was logged until a checkpoint, one entry for each step."""
        state = json.loads((self.output / f"checkpoint-{step}" / "trainer_state.json").read_bytes())
        return [entry for entry in state["log_history"] if "loss" in entry]

    def evaluations(self, step: int) -> list[dict[str, Any]]:
        """What the training itself measured on held-out rows until a checkpoint."""
        state = json.loads((self.output / f"checkpoint-{step}" / "trainer_state.json").read_bytes())
        return [entry for entry in state["log_history"] if "eval_loss" in entry]

    def export(self) -> str:
        return export_checkpoint(
            self.output, str(StorageUri.from_path(self.workspace / "exports")), source="run/job", step=EXPORTED
        ).uri
