"""Trains on every stock runtime through TrainJobs of an embedded cluster, and prints a table: `make runtimes`.

Exit status: 0 if every training succeeded and its loss fell, 1 if not, 2 if there is no GPU for --gpu.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rows import ROWS, Row
from training import Outcome, bench, prepare

from trainwright.controlplane.gpus import gpu_count


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/runtimes", description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="beginnings of runtimes, such as jax")
    parser.add_argument("--gpu", action="store_true", help="what needs an NVIDIA GPU, instead of what a CPU can do")
    parser.add_argument("--quick", action="store_true", help="what fits into the time of CI")
    options = parser.parse_args()
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=200)
    if options.gpu and not gpu_count():
        console.print("skipped: this machine has no NVIDIA GPU with a driver (nvidia-smi lists none)")
        return 2
    chosen = [row for row in ROWS if row.is_for_gpu == options.gpu and (row.is_quick or not options.quick)]
    chosen = [row for row in chosen if not options.only or row.runtime.startswith(tuple(options.only))]
    for name, seconds in prepare({row.environment for row in chosen}).items():
        console.print(f"environment {name}: {seconds:.1f} s")
    outcomes: list[tuple[Row, Outcome]] = []
    with tempfile.TemporaryDirectory(prefix="runtimes-") as folder, bench(Path(folder)) as cluster:
        for row in chosen:
            outcomes.append((row, cluster.run(row)))
            console.print(f"{row.runtime}, {row.name}: {outcomes[-1][1].problem or 'ok'} ({outcomes[-1][1].wall:.1f} s)")
    console.print(table(outcomes))
    return int(any(outcome.problem for _, outcome in outcomes))


def table(outcomes: list[tuple[Row, Outcome]]) -> Table:
    found = Table("runtime", "training", "nodes", "wall s", "not the framework's s", "first loss", "last loss", "")
    for row, outcome in outcomes:
        numbers = (f"{outcome.wall:.1f}", f"{outcome.own:.1f}", _shown(outcome.first), _shown(outcome.last))
        found.add_row(row.runtime, row.name, f"{row.nodes} x {row.processes}", *numbers, outcome.problem or "ok")
    return found


def _shown(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4g}"


if __name__ == "__main__":
    sys.exit(main())
