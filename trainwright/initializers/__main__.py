"""`python -m trainwright.initializers dataset|model`: the program of a TrainJob's initializer steps.

Reads what Trainer's initializers read (STORAGE_URI, IGNORE_PATTERNS, ACCESS_TOKEN), DATASET_* options of our own, and where
the workspace is shared, TRAINWRIGHT_* variables (see `program`).
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from pydantic import ValidationError

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.program import run_initializer
from trainwright.storage.errors import BadUri, StorageError
from trainwright.workspace.errors import WorkspaceError
from trainwright.workspace.umask import apply_umask

_TARGETS = {"dataset": "/workspace/dataset", "model": "/workspace/model"}


def main() -> int:
    """Exit code 0 when the files are in place, 2 for a source or a folder that cannot be used, 1 for trouble on the way."""
    parser = argparse.ArgumentParser(prog="trainwright.initializers")
    parser.add_argument("kind", choices=sorted(_TARGETS))
    parser.add_argument("--target", type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        apply_umask(os.environ)
        target = arguments.target or Path(_TARGETS[arguments.kind])
        receipt = run_initializer(arguments.kind, target, os.environ)
    except (InitializerError, WorkspaceError, BadUri) as error:
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


if __name__ == "__main__":
    sys.exit(main())
