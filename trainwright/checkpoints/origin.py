"""Records in an output folder which dataset, model and builtin trainer its checkpoints come from, and which job created it.

These are small files in the folder itself, so that they stay with it when the folder is archived. The digests in the origin decide
what may be resumed. The record of sources only describes where dataset and base model were fetched from, and the generation
settings of the base: from it an export names the base of its adapter as others can fetch it, and not as the path in a pod.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

from trainwright.checkpoints.formats.foreign_settings import read_config
from trainwright.checkpoints.formats.whole_files import ADAPTER_CONFIG
from trainwright.checkpoints.special_tokens import generation_settings
from trainwright.checkpoints.training_start import read_description
from trainwright.storage.errors import BadUri, StorageError
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.storage.uri import StorageUri
from trainwright.text.foreign_texts import one_line
from trainwright.text.hub_names import with_scheme
from trainwright.workspace.receipt import NAME, Receipt, read_receipt

ORIGIN = ".trainwright-origin.json"
INITIAL_JOB = ".trainwright-job.json"
_MAX_BYTES = 1024 * 1024
Origin = dict[str, str]
"""Maps `dataset` and `model` to the digest of the prepared data, `trainer` to the name of the builtin trainer, and `training` to the
digest of what the request trains, if known."""
TRAINER, TRAINING = "trainer", "training"
SOURCES = ".trainwright-sources.json"
SOURCES_KEY = "sources"
"""Key of an export's metadata: the sources of its `dataset` and `model`."""
_KINDS = ("dataset", "model")
_MAX_TEXT = 2000
_MAX_GENERATION = 64 * 1024
"""Characters of the generation settings of a base model that are kept."""
_NOTHING_GIVEN: Mapping[str, str] = MappingProxyType({})


def read_origin(workspace: Path, *, dataset: Path | None = None, model: Path | None = None) -> Origin:
    """Return the digests of the prepared dataset and model that have receipts.

    The folders default to `workspace/dataset` and `workspace/model`. Raises StorageError.
    """
    origin = {}
    for step, folder in (("dataset", dataset or workspace / "dataset"), ("model", model or workspace / "model")):
        receipt = read_receipt(folder)
        if receipt is not None:
            origin[step] = receipt.digest
        elif (folder / NAME).exists():  # treating it as unknown could archive valid checkpoints
            raise StorageError(f"{folder / NAME} cannot be parsed; remove it and prepare the {step} again")
    return origin


def is_same_origin(one: object, other: object) -> bool:
    """Whether checkpoints have the same origin. A trainer and a training are compared only if both are known: other programs do not
    name theirs."""
    if not isinstance(one, dict) or not isinstance(other, dict):  # one is unknown
        return one == other
    programs = [{str(origin[name]) for origin in (one, other) if origin.get(name)} for name in (TRAINER, TRAINING)]
    inputs = [{name: origin[name] for name in origin if name not in (TRAINER, TRAINING)} for origin in (one, other)]
    return inputs[0] == inputs[1] and all(len(known) < 2 for known in programs)


def recorded_origin(output: Path) -> Origin | None:
    """Return the origin of the checkpoints in `output`, or None without a record. Raises StorageError."""
    recorded: Origin | None = _read(output / ORIGIN)
    return recorded


def record_origin(output: Path, origin: Origin) -> None:
    recorded = recorded_origin(output)
    if recorded is not None and is_same_origin(recorded, origin):
        origin = {**recorded, **origin}
    if recorded != origin:
        write_bytes(output / ORIGIN, json.dumps(origin, sort_keys=True).encode())


def recorded_initial_job(output: Path) -> str:
    """Return the job that created this output with an explicit `resume` setting, or an empty string. Raises StorageError."""
    return str((_read(output / INITIAL_JOB) or {}).get("job") or "")


def record_initial_job(output: Path, job: str) -> None:
    write_bytes(output / INITIAL_JOB, json.dumps({"job": job}).encode())


def archive(folder: Path) -> Path:
    """Rename the folder to the first free name `FOLDER.previous-N`. Returns the new path. Raises StorageError."""
    number = 1
    while (archived := folder.with_name(f"{folder.name}.previous-{number}")).exists():
        number += 1
    with disk_errors(folder):
        os.replace(folder, archived)
    return archived


def _read(path: Path) -> dict[str, str] | None:
    content = None
    try:
        # The leader of a job may archive the folder while other nodes read it.
        with disk_errors(path), contextlib.suppress(FileNotFoundError):
            content = json.loads(read_plain(path, _MAX_BYTES)) if path.exists() else None
    except (ValueError, RecursionError):  # rejected below: a broken record could let foreign checkpoints in
        content = ()
    if content is None or isinstance(content, dict):
        return content
    raise StorageError(f"{path} is not valid JSON of Trainwright; remove it to resume from the checkpoints beside it")


class Source(TypedDict):
    """The URI of a prepared input, without a query, and the revision that was fetched; empty if it has none."""

    source: str
    revision: str


@dataclass(frozen=True)
class Inputs:
    """The sources of `dataset` and `model` as far as they are known, and the generation settings of the base model."""

    sources: Mapping[str, Source] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    model_path: str = ""
    """Where the pods of the training see the base model."""

    @property
    def base_name(self) -> tuple[str, str]:
        """The name by which libraries load the base model, and its revision; empty if it is not known."""
        return name_and_revision(self.sources["model"]) if "model" in self.sources else ("", "")


def record_inputs(output: Path, *, dataset: Path, model: Path, given: Mapping[str, str] = _NOTHING_GIVEN) -> None:
    """Record the sources of the prepared folders that have receipts. Raises StorageError.

    `given` are the URIs of `dataset` and `model` in the request of the job: a folder is shared by all who have prepared the same
    contents, and its receipt names the source of the first of them.
    """
    receipts = {"dataset": read_receipt(dataset), "model": read_receipt(model)}
    sources = {
        kind: found for kind, receipt in receipts.items() if receipt and (found := source_of(receipt, given.get(kind, "")))
    }
    generation = generation_settings(model)
    if len(json.dumps(generation)) > _MAX_GENERATION:
        generation = {}
    record = {"sources": sources, "generation": generation, "model_path": str(model)}
    if sources and read_description(output, SOURCES) != record:
        write_bytes(output / SOURCES, json.dumps(record, indent=1, sort_keys=True).encode() + b"\n")


def recorded_inputs(output: Path) -> Inputs:
    """Return what is recorded; what is invalid counts as unknown. Raises StorageError."""
    found = read_description(output, SOURCES)
    found = found if isinstance(found, dict) else {}
    generation, path = found.get("generation"), found.get("model_path")
    return Inputs(sources_in(found), generation if isinstance(generation, dict) else {}, path if isinstance(path, str) else "")


def sources_in(metadata: Mapping[str, Any]) -> dict[str, Source]:
    """Return the sources in the metadata of an export, or in a record."""
    found = metadata.get(SOURCES_KEY)
    entries = {kind: found.get(kind) for kind in _KINDS} if isinstance(found, dict) else {}
    return {
        kind: Source(source=entry["source"], revision=entry["revision"])
        for kind, entry in entries.items()
        if isinstance(entry, dict) and entry.get("source") and all(_is_line(entry.get(name)) for name in ("source", "revision"))
    }


def source_of(receipt: Receipt, given: str = "") -> Source | None:
    """Return the source of a prepared input; of one that was fetched from a run's exports, that export.

    `given` is the source that was asked for; the receipt's revision is known to be its own only if the receipt names it.
    """
    export = receipt.details.get("export")
    text = export.get("uri") if isinstance(export, dict) else None
    recorded, asked = _uri(receipt.source), _uri(given)
    if asked and asked != recorded:  # the same contents from elsewhere; the revision there is not known
        return Source(source=asked, revision="")
    uri = _uri(str(text or receipt.source))
    return Source(source=uri, revision=receipt.revision) if uri else None


def _uri(text: str) -> str:
    """Return a source without a query; empty for what is none."""
    try:
        return str(StorageUri.parse(with_scheme(text.strip()))) if text else ""
    except BadUri:
        return ""


def name_and_revision(source: Source) -> tuple[str, str]:
    """Return how transformers and PEFT name a model, and its revision: a repository of the Hub, or a local path.

    They cannot load others, nor exports, whose files are stored under other names: these are named by their URI.
    """
    try:
        uri = StorageUri.parse(source["source"])
    except BadUri:
        return "", ""
    if uri.scheme == "hf" and not uri.folder:  # libraries load repositories of the Hub by their names
        return uri.location, source["revision"] or uri.revision
    # And folders by their paths; the files of an export are stored under other names.
    if uri.scheme == "file" and not source["revision"].startswith("export:"):
        return uri.location, ""
    return str(uri), ""


def adapter_base(folder: Path) -> str:
    """Return the base model as the adapter in a folder names it; empty for all weights of a model, and if it names none."""
    try:
        name = read_config(folder, ADAPTER_CONFIG).get("base_model_name_or_path")
    except (OSError, ValueError):  # not an adapter that says it
        return ""
    return str(name) if _is_line(name) else ""


def base_advice(name: str, folder: Path) -> str:
    """Return how to load the adapter in a folder if libraries cannot fetch the base model by its `name`; empty if they can."""
    if "://" in name:
        fetch = f"STORAGE_URI={shlex.quote(name)} python -m trainwright.initializers model --target ./base"
        return f"libraries cannot fetch the base model {name}. Fetch it: {fetch}; {_load(folder)}"
    if not name.startswith("/") or Path(name).is_dir():  # libraries find it
        return ""
    return f"the base model was {name}, which is not on this machine. Copy it to ./base; {_load(folder)}"


def _load(folder: Path) -> str:
    return f'then load PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("./base"), "{folder}")'


def _is_line(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= _MAX_TEXT and text == one_line(text)
