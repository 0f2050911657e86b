"""The bundled dataset, base model (built on first use) and settings for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import Progress

from trainwright.embedded.lifecycle import StartFailed
from trainwright.storage.uri import StorageUri

DATA = Path(__file__).with_name("data") / "harbour.jsonl"
SAMPLE_ROW = 3
"""Index in the bundled held-out rows: a simple question with a short answer."""
_BUILD = """
import sys
from pathlib import Path
from trainwright.quickstart.base_model import ensure_base_model
ensure_base_model(Path(sys.argv[1]), preset=sys.argv[2], on_step=lambda step, steps: print(step, steps, flush=True))
"""
USUAL_SECONDS = {"initialize-dataset": 2, "export-checkpoint": 3, "evaluate": 7}
"""Of steps without progress, with the bundled model and dataset on two cores."""
# Chosen so that the bundled model improves visibly in about a minute on two cores.
QUICKSTART_SETTINGS = json.dumps(
    {
        "method": "lora",
        "steps": 700,
        "learning_rate": 3e-3,
        "batch_size": 4,
        "max_length": 128,
        "lora_rank": 32,
        "lora_alpha": 64,
        "save_steps": 100,
        "logging_steps": 5,
        "seed": 3,
        "cpu": True,
        "extra": ["--lr_scheduler_type", "cosine", "--warmup_steps", "10", "--lora_dropout", "0.0"],
    }
)


def bundled_dataset() -> str:
    return str(StorageUri.from_path(DATA))


def base_model(models: Path, preset: str, console: Console) -> Path:
    """The bundled base model. It is built on first use in a separate process, so that torch is not loaded in this one.

    Raises StartFailed if it cannot be built.
    """
    from trainwright.quickstart.base_model import model_folder

    folder = model_folder(models, preset=preset)
    if not folder.is_dir():
        console.print("  building the base model (once; 15 to 30 seconds on two cores) ...", highlight=False)
        command = [sys.executable, "-P", "-c", _BUILD, str(folder.parent), preset]
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            status = _show_steps(command, errors, console)
            if status != 0:
                errors.seek(0)
                raise StartFailed(f"the base model could not be built: {errors.read().strip()[-2000:]}")
    return folder.absolute()


def _show_steps(command: list[str], errors: IO[str], console: Console) -> int:
    """Run a command that prints how many steps it has done, and of how many; show a bar with the time left, or a line for each
    quarter without a terminal. Returns its exit status."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
    assert process.stdout is not None
    began, quarters = 0.0, 0
    with Progress(*Progress.get_default_columns(), console=console, transient=True) as bar:
        task = bar.add_task("  base model", total=None)
        try:
            for line in process.stdout:
                done, _, total = line.partition(" ")
                if not done.isdigit():
                    continue
                bar.update(task, completed=int(done), total=int(total))
                began = began or time.monotonic()  # with the first step, after the imports
                if not console.is_terminal and 4 * int(done) // int(total) > quarters:
                    quarters = 4 * int(done) // int(total)
                    left = (time.monotonic() - began) * (4 - quarters) / quarters
                    console.print(f"      {25 * quarters} % ({left:.0f} s left)", highlight=False)
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
