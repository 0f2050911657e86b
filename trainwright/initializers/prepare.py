"""What preparing a dataset and preparing a model have in common: into a folder of one's own, or into the store of a workspace.

Either way: is it there already, else fetch and prepare in a scratch folder beside the place, then take the place in one step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.api.hub_names import with_scheme
from trainwright.initializers.placement import already_there, take_place
from trainwright.initializers.source import Wanted, revision_of
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri
from trainwright.workspace.earlier import import_earlier
from trainwright.workspace.layout import Kind, store_path
from trainwright.workspace.prepared import Prepared, find_prepared, publish
from trainwright.workspace.receipt import Receipt


@dataclass(frozen=True)
class Task:
    """What is to be prepared. `options` None takes what was prepared in any way."""

    kind: Kind
    uri: str
    """As it was asked for; it stands in the receipt."""
    wanted: Wanted
    options: dict[str, Any] | None
    make: Callable[[StorageUri, str | None, Path], tuple[Receipt, Path]]
    """Fetches and prepares in a scratch folder, at a revision; returns the receipt and the finished folder in it."""

    @property
    def source(self) -> StorageUri:
        """Raises BadUri."""
        return StorageUri.parse(with_scheme(self.uri))


def prepare_at(task: Task, target: Path) -> Receipt:
    """Prepare into the folder `target`, or take what is there. Raises InitializerError, StorageError, NoSpace."""
    source = task.source
    with disk_errors(target):
        revision = revision_of(source, task.wanted)
        receipt = already_there(task.kind, target, task.uri, revision, task.options)
        if receipt is not None:
            return receipt
        with scratch_folder(target, f"{task.kind} {task.uri} {revision}") as scratch:
            receipt, prepared = task.make(source, revision, scratch)
            take_place(task.kind, prepared, target)
            return receipt


def prepare_in(task: Task, workspace: Path) -> Prepared:
    """Prepare into the shared store of a workspace, or take what is there. Raises InitializerError, StorageError, NoSpace."""
    source = task.source
    spellings = tuple(dict.fromkeys((task.uri, str(source))))
    with disk_errors(workspace):
        revision = revision_of(source, task.wanted)
        found = find_prepared(workspace, task.kind, task.uri, revision, task.options)
        found = found or import_earlier(workspace, task.kind, spellings, revision, task.options)
        if found is not None:
            return found
        # A scratch folder for each source: what was fetched of one is not cleared away by another.
        beside = store_path(workspace, task.kind) / hashlib.sha256(str(source).encode("utf-8", "surrogateescape")).hexdigest()
        with scratch_folder(beside, f"{task.kind} {source} {revision}") as scratch:
            receipt, prepared = task.make(source, revision, scratch)
            return Prepared(receipt, publish(task.kind, prepared, receipt, workspace))
