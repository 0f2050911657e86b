"""`python -m trainwright.quickstart`, the command behind `make finetune`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from rich.console import Console

from trainwright.quickstart.finetune import Options, finetune


def main() -> int:
    parser = argparse.ArgumentParser(prog="make finetune", description="Fine-tune a language model on this machine.")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("--name", default="", help="name of the run; default: the unfinished run, else a new one")
    parser.add_argument("--model", default="", help="hf://org/name, file:// or a path; default: the bundled model")
    parser.add_argument("--dataset", default="", help="hf://org/name, file:// or a path; default: the bundled dataset")
    parser.add_argument("--export", default="", help="URI for the exported checkpoint; default: the run's folder")
    parser.add_argument("--settings", default="", help="training settings as JSON; see the component train")
    parser.add_argument("--orchestrator", default="kfp")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--preset", default="quickstart", help="size of the bundled model: quickstart or tiny")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if os.environ.get("TRAINWRIGHT_DEBUG") else logging.ERROR)
    options = Options(**{**vars(arguments), "runs": arguments.runs.absolute()})
    return finetune(options, Console())


if __name__ == "__main__":
    sys.exit(main())
