"""A program in the place of `trainwright.evaluation.program`: the more rows a checkpoint of the scripted trainer has seen, the better.

Imports nothing but the standard library, since it is copied to a folder that pods can read. Takes the options of that program; with
--same-data it fails unless the checkpoint was trained on the rows that it is evaluated on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from pathlib import Path
from typing import Any

BEFORE = 4.0


def loss_after(rows: int) -> float:
    """The loss of a checkpoint that was trained on so many rows, in nats per token."""
    return 1 + 1 / rows


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("base", "data", "checkpoint", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--sample-row", type=int, default=0)
    parser.add_argument("--same-data", action="store_true")
    given, _ = parser.parse_known_args()
    assert (given.base / "config.json").is_file()
    trained = json.loads((given.checkpoint / "trainer_state.json").read_bytes())["scripted"]["rows"]
    if given.same_data:
        assert trained == (given.data / "train.jsonl").read_text("utf-8"), "the evaluation has other data than the training"
    held_out = given.data / "test.jsonl"
    measured = (held_out if held_out.exists() else given.data / "train.jsonl").read_text("utf-8")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(_result(given, measured, loss_after(len(trained.splitlines())), held_out.exists())), "utf-8")
    print("evaluated")


def _result(given: argparse.Namespace, measured: str, after: float, is_held_out: bool) -> dict[str, Any]:
    loss, perplexity = ("loss", "perplexity") if is_held_out else ("training_loss", "training_perplexity")
    of_rows = {when: {loss: value, perplexity: math.exp(value)} for when, value in (("before", BEFORE), ("after", after))}
    kind = "adapter" if (given.checkpoint / "adapter_config.json").exists() else "model"
    return {
        **of_rows,
        "kind": kind,
        "held_out": is_held_out,
        "rows": len(measured.splitlines()),
        "rows_digest": hashlib.sha256(measured.encode()).hexdigest(),
        "sample": {"prompt": "p", "expected": "e", "before": "b", "after": "a"},
    }


if __name__ == "__main__":
    main()
