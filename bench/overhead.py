"""Benchmarks the overhead of the pipeline: the same TRL training with plain torchrun, and with the pipeline.

Prints both durations and their ratio. The baseline is two `torchrun` processes started directly, which is the minimum duration.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trainwright.jobs.trainers.sft import SftSettings
from trainwright.quickstart.base_model import ensure_base_model

STEPS = 100
SETTINGS = {"steps": STEPS, "learning_rate": 2e-3, "batch_size": 4, "max_length": 128, "save_steps": 50, "cpu": True}
PORT = 29761


def bare(workspace: Path, out: Path) -> float:
    """Seconds of two torchrun nodes on the prepared workspace, without orchestration."""
    arguments = SftSettings.model_validate(SETTINGS).arguments()
    program = [str(Path(sys.executable).with_name("torchrun")), "-m", "trl.scripts.sft", "--report_to", "none"]
    places = ["--model_name_or_path", workspace / "model", "--dataset_name", workspace / "dataset", "--output_dir", out]
    env = {
        **os.environ,
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(PORT),
    }
    env |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    began = time.monotonic()
    nodes = [
        subprocess.Popen(
            [*program, *map(str, places), *arguments],
            env={**env, "PET_NODE_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    for node in nodes:
        node.wait(600)
    return time.monotonic() - began


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        ensure_base_model(runs / ".models", preset="tiny")
        command = [sys.executable, "-m", "trainwright.quickstart", "--runs", str(runs), "--name", "bench", "--preset", "tiny"]
        began = time.monotonic()
        done = subprocess.run([*command, "--settings", json.dumps(SETTINGS)], capture_output=True, text=True, check=True)
        whole = time.monotonic() - began
        training = float(re.search(r"train +([\d.]+) s", done.stdout)[1])  # type: ignore[index]
        alone = bare(runs / "bench/workspace", Path(folder) / "bare")
    print(f"bare torchrun      {alone:6.1f} s")
    print(f"step `train`       {training:6.1f} s   ratio {training / alone:.2f}")
    print(f"whole `finetune`   {whole:6.1f} s   ratio {whole / alone:.2f} (with preparation, export, evaluation, cluster)")


if __name__ == "__main__":
    main()
