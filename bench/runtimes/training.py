"""Runs a row as a user would: `trainwright submit --wait --logs` on an embedded cluster, and measures it."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rows import Row

from trainwright.controlplane.environments import EnvironmentDefinition, EnvironmentStore
from trainwright.controlplane.environments.definition import bundled_environments
from trainwright.jobs.logs.log_metrics import parse_progress
from trainwright.text.foreign_texts import plain

PROGRAMS = Path(__file__).parent / "programs"
TRAINWRIGHT = str(Path(sys.executable).parent / "trainwright")
SECONDS = 150
"""Limit of a job."""
_SOURCE = re.compile(r"^\[[^]]*\] ")
"""What the command line puts before a line: the step and the rank."""
_FALL = 0.98
"""The last loss is at most this share of the first."""
_WORDS = ("ferry", "harbour", "captain", "lantern")
_DATA = {
    # The model has no chat template, which mlx_lm uses for prompts.
    "mlx-distributed": lambda word: {"text": f"Where is the {word}? The {word} is in the {word} house."},
    "trl-sft": lambda word: {"prompt": f"Where is the {word}?", "completion": f"The {word} is in the {word} house."},
    "trl-dpo": lambda word: {"prompt": f"Where is the {word}?", "chosen": f"In the {word} house.", "rejected": "Who knows."},
    "trl-kto": lambda word: {"prompt": f"Where is the {word}?", "completion": f"In the {word} house.", "label": word < "g"},
}
BUILD_TINY = """
import sys
from pathlib import Path
from trainwright.quickstart.base_model import ensure_base_model
print(ensure_base_model(Path(sys.argv[1]), preset="tiny"))
"""


@dataclass(frozen=True)
class Outcome:
    """Seconds from the command to its end, and those of them in which no container of the job ran; the losses; what was wrong."""

    wall: float
    own: float
    first: float | None
    last: float | None
    problem: str


@dataclass(frozen=True)
class Bench:
    """A cluster in `folder`, whose pods share `folder / data`."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def run(self, row: Row) -> Outcome:
        """Train a row, and what comes after it in the same folder; the outcome is that of the last training."""
        slug = re.sub(r"[^a-z0-9]+", "-", f"{row.runtime} {row.name}".lower()).strip("-")
        shared = self.data / slug
        shared.mkdir(parents=True, exist_ok=True)
        shared.chmod(0o777)  # pods of the MPI runtimes run as user 1000
        outcome = self._train(row, f"{slug}-1", shared)
        if row.then is not None and not outcome.problem:
            outcome = self._train(row.then, f"{slug}-2", shared)
        return outcome

    def _train(self, row: Row, run: str, shared: Path) -> Outcome:
        words = self._manifest(row, run) if row.tune else self._settings(row, run, shared)
        started, began = time.monotonic(), time.time()
        done = subprocess.run(
            [TRAINWRIGHT, "submit", "--home", str(self.home), *words, "--wait", "--logs", "--timeout", str(SECONDS)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        wall = time.monotonic() - started
        losses = losses_in(done.stdout)
        first, last = (losses[0], losses[-1]) if losses else (None, None)
        return Outcome(wall, wall - self._busy_since(began), first, last, _problem(row, done, losses))

    def _settings(self, row: Row, run: str, shared: Path) -> list[str]:
        words = ["--run-id", run, "--runtime", row.runtime]
        words += ["--num-nodes", str(row.nodes), "--num-proc-per-node", str(row.processes)]
        words += [*row.options, *(["--command", row.program, "--code", str(PROGRAMS)] if row.program else [])]
        places: dict[str, object] = {"data": shared, "programs": self.data / "programs"}
        if row.table_rows:
            places["table"] = self._table(row.table_rows)
        if row.model:
            model, dataset = places["model"], places["dataset"] = self._inputs(row)
            if not any("{model}" in word for word in words):
                words += ["--model-uri", model.as_uri(), "--dataset-uri", dataset.as_uri()]
        for name, place in places.items():
            words = [word.replace(f"{{{name}}}", str(place)) for word in words]
        return words

    def _manifest(self, row: Row, run: str) -> list[str]:
        model, dataset = (path.as_uri() for path in self._inputs(row))
        trainer = {"numNodes": row.nodes, "numProcPerNode": row.processes, "command": ["tune", "run"], "args": [*row.tune]}
        trainer["resourcesPerNode"] = {"limits": {"cpu": 1, "nvidia.com/gpu": 0}}  # the runtimes ask for two
        spec = {
            "runtimeRef": {"name": row.runtime},
            "initializer": {"dataset": {"storageUri": dataset}, "model": {"storageUri": model}},
            "trainer": trainer,
        }
        job = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": f"tune-{zlib.crc32(run.encode()):08x}"},  # short: names of pods are longer
            "spec": spec,
        }
        file = self.folder / f"{run}.json"
        file.write_text(json.dumps(job), "utf-8")
        return ["-f", str(file)]

    def _busy_since(self, began: float) -> float:
        """Return for how many seconds at least one container of the pods ran, which were started after that time."""
        runs = []
        for file in (self.home / "node" / "pods").glob("*/containers/*/*/exit.json"):
            state = json.loads(file.with_name("state.json").read_bytes())
            if state["startedAt"] >= began:
                runs.append((state["startedAt"], json.loads(file.read_bytes())["finishedAt"]))
        busy, until = 0.0, 0.0
        for start, end in sorted(runs):
            busy += max(end - max(start, until), 0.0)
            until = max(until, end)
        return busy

    def _table(self, count: int) -> str:
        """Make an Iceberg table. Returns the URI of its metadata."""
        folder = self.data / f"table-{count}"
        if not folder.exists():
            python = EnvironmentStore.chosen().place(_definition("data-cache")) / "bin" / "python"
            _checked([str(python), str(Path(__file__).parent / "iceberg_table.py"), str(folder), str(count)])
        return max((folder / "shop" / "orders" / "metadata").glob("*.metadata.json")).as_uri()

    def _inputs(self, row: Row) -> tuple[Path, Path]:
        """Make the model and the rows of a training. Returns their folders."""
        folder = self.data / (row.model if row.model != "tiny" else row.runtime)
        if row.model != "tiny":
            if not folder.exists():
                python = EnvironmentStore.chosen().place(_definition("torchtune")) / "bin" / "python"
                _checked([str(python), str(Path(__file__).parent / "shrunken_models.py"), str(folder), row.model])
            model = folder / "model"
        else:
            folder.joinpath("dataset").mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(_DATA[row.runtime](word)) for word in _WORDS * 8]
            for split in ("train", "valid"):
                (folder / "dataset" / f"{split}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
            model = Path(_checked([sys.executable, "-c", BUILD_TINY, str(self.data / "models")]).splitlines()[-1])
        return model, folder / "dataset"


@contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    """Start an embedded cluster below a folder, and stop it at the end."""
    found = Bench(folder)
    found.data.mkdir(parents=True)
    shutil.copytree(PROGRAMS, found.data / "programs")
    env = {**os.environ, "TRAINWRIGHT_SHARED_FOLDERS": str(found.data)}
    _checked([TRAINWRIGHT, "up", "--home", str(found.home), "--port", "0"], env)
    try:
        yield found
    finally:
        _checked([TRAINWRIGHT, "down", "--home", str(found.home)])


def prepare(names: set[str]) -> dict[str, float]:
    """Prepare environments that are needed. Returns the seconds of each."""
    seconds = {}
    for definition in bundled_environments():
        if definition.name in names and definition.is_needed:
            started = time.monotonic()
            EnvironmentStore.chosen().prepare(definition)
            seconds[definition.name] = time.monotonic() - started
    return seconds


def losses_in(log: str) -> list[float]:
    """Return the losses that a log reports, in order; those that are not finite, too."""
    found = []
    for line in (_SOURCE.sub("", plain(line)) for line in log.splitlines()):
        if (progress := parse_progress(line)) is not None and (loss := dict(progress.metrics).get("loss")) is not None:
            found.append(float(loss))
    return found


def _problem(row: Row, done: subprocess.CompletedProcess[str], losses: list[float]) -> str:
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        told = next((line for line in lines if " failed: " in line or line.startswith("error")), lines[-1] if lines else "")
        return f"exit code {done.returncode}: {told}"
    if row.expects and not re.search(row.expects, done.stdout):
        return f"the log has no {row.expects!r}"
    if not losses:
        return "the log has no loss"
    if not all(map(math.isfinite, losses)):
        return "a loss is not finite"
    if losses[-1] > losses[0] * _FALL:
        return f"the loss has not fallen: {losses[0]} to {losses[-1]}"
    return ""


def _definition(name: str) -> EnvironmentDefinition:
    return next(each for each in bundled_environments() if each.name == name)


def _checked(command: list[str], env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout
