"""Exports checkpoints while training runs: each one as soon as it is complete, before rotation removes it.

Changes are noticed by the kernel where the package `watchfiles` (extra `watch`) is installed. A look every few seconds is made in any
case: changes by another client of a network file system are not announced.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError, DivergedCheckpoint
from trainwright.checkpoints.find import Checkpoint, find_checkpoints, fingerprint
from trainwright.checkpoints.prune import Retention, prune_exports
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.storage.errors import BadUri, StorageError

log = logging.getLogger(__name__)
POLL_SECONDS = 10.0


@dataclass
class Watch:
    """Exports from the training output `folder` to `target`, the run's exports, until `stop` is set.

    `source` names the run. With `retention`, older exports are deleted after each new one.
    """

    folder: Path
    target: str
    source: str
    stop: threading.Event
    options: ExportOptions = field(default_factory=ExportOptions)
    retention: Retention | None = None
    poll_seconds: float = POLL_SECONDS
    on_export: Callable[[ExportResult], object] = lambda _exported: None
    failure: str = field(default="", init=False)
    """Why the last attempt failed, or empty."""
    _seen: dict[Path, object] = field(default_factory=dict, init=False)

    def run(self) -> None:
        """Export until `stop` is set, and once more then: the last checkpoint may be complete only after training has ended.

        Errors of a store or a checkpoint are logged and tried again with the next look; `failure` is the one that is left.
        Raises BadUri.
        """
        for _ in self._wake_ups():
            self._export_new()
        self._export_new()

    def _export_new(self) -> None:
        try:
            found = find_checkpoints(self.folder)
        except (StorageError, CheckpointError) as error:  # tried again with the next look
            self._fail(self.folder, error)
            return
        self._seen = {path: shown for path, shown in self._seen.items() if path in {each.path for each in found}}
        for checkpoint in found:
            shown = fingerprint(checkpoint.path)
            if shown and not checkpoint.incomplete and self._seen.get(checkpoint.path) != shown:
                self._export(checkpoint, shown)

    def _export(self, checkpoint: Checkpoint, shown: object) -> None:
        try:
            exported = export_checkpoint(self.folder, self.target, source=self.source, step=checkpoint.step, options=self.options)
            if self.retention is not None and not exported.existed:
                prune_exports(self.target, self.retention, dry_run=False)
        except BadUri:  # no look could succeed
            raise
        except DivergedCheckpoint as error:  # it stays diverged: tried again only if it changes
            self._seen[checkpoint.path] = shown
            self._fail(checkpoint.path, error)
            return
        except (StorageError, CheckpointError) as error:
            if not checkpoint.path.exists():  # nothing is left to try again
                log.warning("event=checkpoint_removed path=%s reason=%r", checkpoint.path, "rotated away before it was exported")
                return
            self._fail(checkpoint.path, error)
            return
        self.failure = ""
        self._seen[checkpoint.path] = shown
        self.on_export(exported)

    def _fail(self, path: Path, error: Exception) -> None:
        self.failure = str(error)
        log.warning("event=export_failed path=%s reason=%r action=try_again", path, self.failure)

    def _wake_ups(self) -> Iterator[None]:
        """Yield at once, then after changes in the folder and at least every `poll_seconds`, until `stop` is set."""
        changes: Iterator[object] | None = None
        while not self.stop.is_set():
            yield
            changes = changes or self._changes()
            if changes is None:
                self.stop.wait(self.poll_seconds)
                continue
            try:
                next(changes, None)
            except (OSError, RuntimeError) as error:  # too many watches, a file system without them, the folder is removed
                log.info("event=no_change_events path=%s reason=%r", self.folder, str(error))
                changes = None
                self.stop.wait(self.poll_seconds)

    def _changes(self) -> Iterator[object] | None:
        """Return an iterator that waits for changes announced by the kernel, `poll_seconds` at most; None if there are none."""
        try:
            from watchfiles import watch
        except ImportError:  # looked at every `poll_seconds` instead
            return None
        if not self.folder.is_dir():  # the training has not begun
            return None
        return watch(
            self.folder,
            stop_event=self.stop,
            rust_timeout=max(1, int(self.poll_seconds * 1000)),
            yield_on_timeout=True,
            watch_filter=None,
            raise_interrupt=False,
        )
