"""`python -m trainwright.quickstart`, the command behind `make finetune`."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from trainwright.quickstart.finetune import Options, finetune

VARIABLE = "TRAINWRIGHT_FINETUNE_"


def main() -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that is not Unicode is shown, not a traceback
    options = _parser(os.environ).parse_args()
    logging.basicConfig(level=logging.DEBUG if os.environ.get("TRAINWRIGHT_DEBUG") else logging.ERROR)
    return finetune(Options(**{**vars(options), "runs": options.runs.absolute()}), Console())


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser. Defaults are the variables by which the Makefile passes its own: as text, without a shell."""

    def given(name: str, default: str = "") -> str:
        return environ.get(VARIABLE + name) or default

    parser = argparse.ArgumentParser(prog="make finetune", description="Fine-tune a language model on this machine.")
    add = parser.add_argument
    add("--runs", type=Path, default=Path("runs"), help="folder of the runs")
    add("--name", default=given("NAME"), help="name of the run; default: the unfinished run, else a new one")
    add("--model", default=given("MODEL"), help="hf://org/name, file:// or a path; default: the bundled model")
    add("--dataset", default=given("DATASET"), help="hf://org/name, file:// or a path; default: the bundled dataset")
    add("--export", default=given("EXPORT"), help="URI or folder for the exported checkpoint; default: the run's folder")
    add("--settings", default=given("SETTINGS"), help="training settings as JSON; see the component train")
    add("--columns", default=given("COLUMNS"), help='column of the dataset for each column to read, as {"prompt": "question"}')
    add("--layout", default=given("LAYOUT"), help="layout of the dataset: alpaca, prompt-completion, messages, text ...")
    add("--orchestrator", default=given("ORCHESTRATOR", "kfp"))
    add("--nodes", type=int, default=2)
    add("--preset", default="quickstart", choices=("quickstart", "tiny"), help="size of the bundled model")
    add("--keep", action="store_true", default=bool(given("KEEP")), help="leave the cluster running")
    return parser


if __name__ == "__main__":
    sys.exit(main())
