"""Where does training go on? The last whole checkpoint of the same dataset and model, written as a configuration file for TRL.

Runs as an init container of a training step, so that every start of a pod decides anew, from what lies on the volume then.
Beside the configuration it leaves a copy of `orderly_exit.py`, for images of the training program that do not have this package.
Usage: `python -m trainwright.checkpoints.resume_point --workspace DIR --config FILE --launcher FILE`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from importlib import resources
from pathlib import Path

from trainwright.checkpoints.errors import NoCheckpoint
from trainwright.checkpoints.find import latest_checkpoint
from trainwright.initializers.receipt import NAME, read_receipt
from trainwright.storage.errors import StorageError
from trainwright.storage.transfer import disk_errors, write_bytes

ORIGIN = ".trainwright-origin.json"
log = logging.getLogger(__name__)


def resume_point(workspace: Path, *, leader: bool = True) -> Path | None:
    """The checkpoint below `workspace/output` to go on from, or None for a fresh start.

    Checkpoints of another dataset or model are not gone on from: the `leader` (completion index 0) moves such an output
    aside; the others come to the same answer whether they look before that or after. Raises StorageError.
    """
    output = workspace / "output"
    origin = _origin(workspace)
    if _recorded(output) not in (None, origin):
        if leader:
            _move_aside(output)
            _record(output, origin)
        return None
    if leader:
        _record(output, origin)
    try:
        return latest_checkpoint(output).path
    except NoCheckpoint:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="trainwright.checkpoints.resume_point")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--launcher", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        point = resume_point(arguments.workspace, leader=os.environ.get("JOB_COMPLETION_INDEX", "0") == "0")
        # JSON is YAML; TRL takes what stands here as defaults of its arguments.
        content = {"resume_from_checkpoint": str(point)} if point else {}
        write_bytes(arguments.config, json.dumps(content).encode() + b"\n")
        write_bytes(arguments.launcher, resources.files("trainwright.runtimes").joinpath("orderly_exit.py").read_bytes())
    except StorageError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"resuming from {point}" if point else "starting afresh")
    return 0


def _origin(workspace: Path) -> dict[str, str]:
    """Digests of the prepared dataset and model, as far as there are receipts of them."""
    origin = {}
    for step in ("dataset", "model"):
        receipt = read_receipt(workspace / step)
        if receipt is not None:
            origin[step] = receipt.digest
        elif (workspace / step / NAME).exists():  # a guess here would put good checkpoints aside
            raise StorageError(f"{workspace / step / NAME} cannot be read: remove it and prepare the {step} again")
    return origin


def _recorded(output: Path) -> dict[str, str] | None:
    """What the checkpoints in `output` come from; None where nothing says it."""
    try:
        with disk_errors(output):
            recorded = json.loads((output / ORIGIN).read_bytes()) if (output / ORIGIN).exists() else None
    except ValueError as error:
        raise StorageError(f"{output / ORIGIN} is not JSON: remove it to go on from the checkpoints beside it") from error
    return recorded


def _record(output: Path, origin: dict[str, str]) -> None:
    if _recorded(output) != origin:
        write_bytes(output / ORIGIN, json.dumps(origin, sort_keys=True).encode())


def _move_aside(output: Path) -> None:
    number = 1
    while (aside := output.with_name(f"output.previous-{number}")).exists():
        number += 1
    with disk_errors(output):
        os.replace(output, aside)
    log.info("output of another dataset or model moved aside to=%s", aside)


if __name__ == "__main__":
    sys.exit(main())
