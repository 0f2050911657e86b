"""The command that `make finetune` runs, with a small model and few steps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

SETTINGS: dict[str, Any] = {
    "steps": 20,
    "learning_rate": 2e-3,
    "batch_size": 2,
    "max_length": 64,
    "lora_rank": 4,
    "save_steps": 5,
    "logging_steps": 2,
    "cpu": True,
}


def command(runs: Path, *more: str, **settings: Any) -> list[str]:
    chosen = json.dumps(SETTINGS | settings)
    return [sys.executable, "-m", "trainwright.quickstart", "--runs", str(runs), "--preset", "tiny", "--settings", chosen, *more]


def start(arguments: list[str], output: IO[str]) -> subprocess.Popen[str]:
    """As `make` would run it: in a process group of its own, with a KUBECONFIG of the user's that must not be used."""
    env = {**os.environ, "KUBECONFIG": "/nonexistent/of-the-user"}
    return subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT, text=True, env=env, start_new_session=True)


def run(arguments: list[str], log: Path, seconds: float = 280) -> tuple[int, str]:
    """Run to the end; exit status and what was printed."""
    with open(log, "w", encoding="utf-8") as output:
        process = start(arguments, output)
        status = process.wait(seconds)
    return status, log.read_text("utf-8")


def processes_of(runs: Path) -> list[int]:
    """Processes that mention the folder in their arguments or environment: nothing of ours should stay."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            mentions = str(runs).encode() in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if mentions and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def manifest_digest(output: str) -> str:
    match = re.search(r"sha256:[0-9a-f]{64}", output)
    assert match, output
    return match[0]
