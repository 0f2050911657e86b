"""Names of folders on a workspace: one for each run, and one for each prepared dataset or model, named by its digest. Pure.

A run's folder has to be the same at every retry, and never that of another run, on file systems without case as well.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from trainwright.jobs.label_values import label_value

DATASETS = "datasets"
MODELS = "models"
RUNS = "runs"
Kind = Literal["dataset", "model"]
_STORES = {"dataset": DATASETS, "model": MODELS}
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_DIGITS = 16
"""Of the digest in a name. `label_value` has 8: two of 60,000 runs with the same beginning would share those."""
_WITH_DIGEST = re.compile(rf".*-[0-9a-f]{{{_DIGITS}}}", re.DOTALL)
_READABLE = 63 - 1 - _DIGITS


def run_folder(run: str, map_index: int = -1) -> str:
    """The folder of a run, `runs/NAME`, relative to its workspace; `map_index` is that of a mapped step, -1 for others.

    A run whose name is a label value in lower case keeps that; any other name gets a digest, so that two runs never share
    a folder.
    """
    if map_index < 0 and _is_plain(run):
        return f"{RUNS}/{run}"
    shown = run if map_index < 0 else f"{run}[{map_index}]"
    readable = re.sub(r"[^a-z0-9_.-]+", "-", shown.lower()).strip("-_.")[:_READABLE].rstrip("-_.") or "run"
    # The index first: a run may be called `a[1]`, and only digits can stand before the first slash.
    exact = f"{max(map_index, -1)}/{run}".encode("utf-8", "surrogatepass")
    return f"{RUNS}/{readable}-{hashlib.sha256(exact).hexdigest()[:_DIGITS]}"


def prepared_folder(kind: Kind, digest: str) -> str:
    """The folder of a prepared dataset or model, `datasets/HEX` or `models/HEX`, relative to its workspace.

    `digest` is that of its receipt, `sha256:` and 64 hexadecimal digits. Raises ValueError naming a digest that is none.
    """
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise ValueError(f"{digest!r} is no digest of a prepared {kind}; expected sha256: and 64 hexadecimal digits")
    if kind not in _STORES:
        raise ValueError(f"{kind!r} is nothing that can be prepared; expected {', '.join(_STORES)}")
    return f"{_STORES[kind]}/{match[1]}"


def _is_plain(run: str) -> bool:
    """Whether a run's name can be that of its folder: no other run's folder can have it then."""
    return run != "" and run.isascii() and run == run.lower() == label_value(run) and not _WITH_DIGEST.fullmatch(run)
