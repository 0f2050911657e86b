"""`python -m trainwright.initializers dataset|model`: the program of a TrainJob's initializer steps.

Reads what Trainer's initializers read (STORAGE_URI, IGNORE_PATTERNS, ACCESS_TOKEN), and DATASET_* options of our own.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from pydantic import ValidationError

from trainwright.initializers.dataset import DatasetOptions, initialize_dataset
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.model import initialize_model
from trainwright.initializers.receipt import Receipt
from trainwright.storage.errors import BadUri, StorageError

_TARGETS = {"dataset": "/workspace/dataset", "model": "/workspace/model"}


def main() -> int:
    """Exit code 0 when the files are in place, 2 for a source that cannot be used, 1 for trouble on the way."""
    parser = argparse.ArgumentParser(prog="trainwright.initializers")
    parser.add_argument("kind", choices=sorted(_TARGETS))
    parser.add_argument("--target", type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        receipt = _initialize(arguments.kind, arguments.target or Path(_TARGETS[arguments.kind]))
    except (InitializerError, BadUri) as error:
        print(error, file=sys.stderr)
        return 2
    except ValidationError as error:
        first = error.errors()[0]
        print(f"DATASET_{str(first['loc'][0]).upper()}: {first['msg']}", file=sys.stderr)
        return 2
    except StorageError as error:
        print(error, file=sys.stderr)
        return 1
    details = " ".join(f"{name}={value}" for name, value in receipt.details.items())
    print(f"{arguments.kind} ready: {len(receipt.files)} files {details} digest={receipt.digest}")
    return 0


def _initialize(kind: str, target: Path) -> Receipt:
    uri = os.environ.get("STORAGE_URI", "")
    if not uri:
        raise InitializerError("STORAGE_URI is not set: name the source in the TrainJob's spec.initializer")
    ignore = tuple(filter(None, (pattern.strip() for pattern in os.environ.get("IGNORE_PATTERNS", "").split(","))))
    if kind == "model":
        return initialize_model(uri, target, ignore=ignore)
    options: dict[str, object] = {"ignore": ignore}
    for field in ("layout", "test_fraction", "max_rows"):
        if text := os.environ.get(f"DATASET_{field.upper()}"):
            options[field] = text
    said = len(options) > 1 or bool(ignore)  # nothing said: whatever an earlier step prepared from this source will do
    return initialize_dataset(uri, target, DatasetOptions.model_validate(options) if said else None)


if __name__ == "__main__":
    sys.exit(main())
