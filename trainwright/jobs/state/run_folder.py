"""Names made from any text: folders on a workspace, one for each run and for each prepared dataset or model, and values of labels.
Pure.

A run keeps its folder at every retry, and no two runs share one, even on case-insensitive file systems. A prepared dataset or model
is named by its digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Literal

DATASETS = "datasets"
MODELS = "models"
RUNS = "runs"
Kind = Literal["dataset", "model"]
_STORES = {"dataset": DATASETS, "model": MODELS}
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_DIGITS = 16
"""Length of the digest in a folder name. The 8 digits of `label_value` would collide among about 60,000 runs with the same prefix."""
_WITH_DIGEST = re.compile(rf".*-[0-9a-f]{{{_DIGITS}}}", re.DOTALL)
_READABLE = 63 - 1 - _DIGITS
AGAIN = "Again"
"""Beginning of the names of folders of a run in which its only training trains again; those of steps have no capitals."""
STEP_DIGITS = 8
"""Length of a step's digest in the names of its TrainJobs and of its folder."""
_STEP_DIGEST = re.compile(rf"-([0-9a-f]{{{STEP_DIGITS}}})(?:-([1-9]\d{{0,2}})(?:-[0-9a-f]{{6}})?)?\Z")


def run_folder(run: str, map_index: int = -1) -> str:
    """Return the folder of a run, `runs/NAME`, relative to its workspace; `map_index` is -1 for tasks that are not mapped.

    A run name that is a lower-case label value is used unchanged; any other name gets a digest, so that two runs never
    share a folder.
    """
    if map_index < 0 and _is_plain(run):
        return f"{RUNS}/{run}"
    shown = run if map_index < 0 else f"{run}[{map_index}]"
    readable = re.sub(r"[^a-z0-9_.-]+", "-", shown.lower()).strip("-_.")[:_READABLE].rstrip("-_.") or "run"
    # The index comes first: a run may be named `a[1]`, and only digits can precede the first slash.
    exact = f"{max(map_index, -1)}/{run}".encode("utf-8", "surrogatepass")
    return f"{RUNS}/{readable}-{hashlib.sha256(exact).hexdigest()[:_DIGITS]}"


def _is_plain(run: str) -> bool:
    """Whether a run name can be used as the folder name: no other run can then get the same folder."""
    return run != "" and run.isascii() and run == run.lower() == label_value(run) and not _WITH_DIGEST.fullmatch(run)


def export_name(folder: str) -> str:
    """Return the name of the folder with the exports of what was trained in `runs/NAME`, or in a step's folder below it.

    That is NAME, or NAME and the step's folder with a digest, which no run is named by.
    """
    run, *step = folder.removeprefix(f"{RUNS}/").split("/")
    if not step:
        return run
    readable = f"{run[: _READABLE // 2]}-{'-'.join(step)}"[:_READABLE].rstrip("-_.")
    return f"{readable}-{hashlib.sha256(folder.encode()).hexdigest()[:_DIGITS]}"


def step_subfolder(place: str, digest: str) -> str:
    """Return the name of a step's folder in that of its run.

    It ends in the step's digest, as its TrainJobs do (`step_digest`), and unlike `output` and others that runs have there.
    """
    readable = re.sub(r"[^a-z0-9_.-]+", "-", place.lower()).strip("-_.")[:_READABLE].rstrip("-_.") or "step"
    return f"{readable}-{digest}"


def later_subfolder(subfolder: str, digest: str, since: str) -> str:
    """Return the folder, in that of its run, of a training that begins with a later attempt of the step with this digest.

    `subfolder` is that of the step, empty for the run's folder itself; `since` is the attempt, and a text that no other attempt has.
    """
    return f"{subfolder or f'{AGAIN}-{digest}'}-{since}"


def folder_of_job(trainjob: Mapping[str, Any]) -> str:
    """Return the folder that a TrainJob notes it writes to, `runs/NAME` or one below it; empty if it notes none."""
    from trainwright.api import names  # a DAG file that is parsed needs neither

    _, runs, name = (trainjob["metadata"].get("annotations") or {}).get(names.RUN_FOLDER_ANNOTATION, "").rpartition(f"/{RUNS}/")
    return f"{RUNS}/{name}" if runs else ""


def step_digest(name: str) -> str:
    """Return the digest of the step in the name of a TrainJob, or of a step's folder; empty if it has none."""
    match = _STEP_DIGEST.search(name)
    return match[1] if match is not None else ""


def step_attempt(name: str) -> int:
    """Return the attempt in the name of a TrainJob, or the one that has begun a step's folder; 1 if it has none."""
    match = _STEP_DIGEST.search(name)
    return int(match[2]) if match is not None and match[2] else 1


def step_folder(name: str) -> str:
    """Return the name of a step's first folder from that of one in which it has trained again."""
    match = _STEP_DIGEST.search(name)
    return name if match is None else name[: match.end(1)]


def prepared_folder(kind: Kind, digest: str) -> str:
    """Return the folder of a prepared dataset or model, `datasets/HEX` or `models/HEX`, relative to its workspace.

    `digest` is the digest of its receipt, `sha256:` and 64 hexadecimal digits. Raises ValueError for any other text.
    """
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise ValueError(f"{digest!r} is not the digest of a prepared {kind}; expected sha256: and 64 hexadecimal digits")
    if kind not in _STORES:
        raise ValueError(f"{kind!r} cannot be prepared; expected {', '.join(_STORES)}")
    return f"{_STORES[kind]}/{match[1]}"


def label_value(text: str) -> str:
    """Return the text as a label value: allowed characters, at most 63, alphanumeric at both ends; a changed value gets a digest."""
    cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")
    if len(cleaned) <= 63 and cleaned == text:
        return cleaned
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{cleaned[:54].rstrip('-_.')}-{digest}".lstrip("-")
