"""`python -m trainwright.initializers dataset|model`: the program of a TrainJob's initializer steps.

Reads the variables of Trainer's initializers (STORAGE_URI, IGNORE_PATTERNS, ACCESS_TOKEN), additional DATASET_* options, and
TRAINWRIGHT_* variables for a shared workspace (see `program`).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

from pydantic import ValidationError

from trainwright.api.names import DATASET_VARIABLES
from trainwright.datacache.settings import SCHEME as CACHE_SCHEME
from trainwright.datacache.settings import CacheError, read_settings
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.program import run_initializer
from trainwright.jobs.request.invalid_settings import words_of
from trainwright.storage.errors import BadUri, NotPermitted, StorageError
from trainwright.text.foreign_texts import printable
from trainwright.workspace.layout import WorkspaceError, apply_umask

_TARGETS = {"dataset": "/workspace/dataset", "model": "/workspace/model"}
_MOST_SHOWN = 80
"""Characters of a value that is refused."""


def main() -> int:
    """Run the initializer. Exit code 0: success; 2: the source or folder is unusable; 1: a transfer failed, a retry may help."""
    parser = argparse.ArgumentParser(prog="trainwright.initializers")
    parser.add_argument("kind", choices=sorted(_TARGETS))
    parser.add_argument("--target", type=Path)
    parser.add_argument("--as-is", action="store_true", help="copy the files of a dataset, as Trainer's initializer does")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    if os.getpid() == 1:  # which a signal without a handler does not end; a later process resumes the download
        signal.signal(signal.SIGTERM, lambda number, _frame: os._exit(128 + number))
    logging.getLogger("botocore").setLevel(logging.WARNING)  # it logs where it found credentials, for every client
    try:
        apply_umask(os.environ)
        if arguments.kind == "dataset" and os.environ.get("STORAGE_URI", "").startswith(CACHE_SCHEME):
            return _start_cache()
        target = arguments.target or Path(_TARGETS[arguments.kind])
        receipt = run_initializer(arguments.kind, target, os.environ, as_is=arguments.as_is)
    except (CacheError, InitializerError, WorkspaceError, BadUri, NotPermitted) as error:  # status 2: a retry cannot succeed
        print(printable(error), file=sys.stderr)
        return 2
    except ValidationError as error:
        first = error.errors()[0]
        variable = f"{DATASET_VARIABLES}{str(first['loc'][0]).upper()}"
        is_quoted = first["type"] == "value_error"  # our own words name the value
        given = "" if is_quoted else f"{os.environ.get(variable, '')[:_MOST_SHOWN]!r}: "
        print(f"{variable}: {given}{words_of(first)}", file=sys.stderr)
        return 2
    except StorageError as error:  # status 1: another try may succeed
        print(printable(error), file=sys.stderr)
        return 1
    details = " ".join(f"{name}={value}" for name, value in receipt.details.items() if name != "report")
    print(f"{arguments.kind} ready: {len(receipt.files)} files {details} digest={receipt.digest}")
    return 0


def _start_cache() -> int:
    """Start the data cache of the TrainJob. Raises CacheError."""
    settings = read_settings(os.environ)
    from trainwright.cluster.connect import NoCluster, connect
    from trainwright.initializers.start_cache import REQUIREMENT, start_cache

    try:
        cluster = connect(in_cluster=True)
    except NoCluster as error:
        raise CacheError(f"the data cache of {settings.job} cannot be started: {error}. {REQUIREMENT}") from error
    cache = start_cache(cluster, settings, cluster.default_namespace)
    print(f"data cache ready: {settings.schema}/{settings.table} at {cache.service} seconds={cache.seconds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
