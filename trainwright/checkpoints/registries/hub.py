"""Publishes the model of an export in a repository of the Hugging Face Hub, as one commit.

A commit is what the Hub publishes atomically, so all files are in one, made on the head that was looked at: if another one has been
made meanwhile, nothing is published. Tags are moved last, to a commit whose files have been compared with the manifest. The files
come from a private folder, where each was verified against the manifest.
"""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export
from trainwright.checkpoints.formats import checkpoint_format, weights_only_files
from trainwright.checkpoints.manifest import ManifestFile
from trainwright.checkpoints.registries.export_facts import ExportFacts
from trainwright.checkpoints.registries.hub_repository import MAIN, RECORD, HubModel, HubRecord, RemoteFile, git_digest
from trainwright.checkpoints.registries.model_card import CARD, CURVE, CardContext, model_card
from trainwright.checkpoints.registries.registration import (
    Registration,
    RegistrationConflict,
    RegistrationError,
    RegistrationOptions,
    RegistryTarget,
)
from trainwright.checkpoints.restore import download_files
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete


log = logging.getLogger(__name__)
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


def register_in_hub(
    export: Export, facts: ExportFacts, target: RegistryTarget, options: RegistrationOptions, environ: Mapping[str, str]
) -> Registration:
    """Publish the model of an export in the repository of `target`, which is created, private, if it does not exist.

    Nothing is committed if the head of the branch has this export already. With `version`, a tag is created; with `alias`, one
    is moved. Raises RegistrationConflict, RegistrationError, CheckpointError, StorageError.
    """
    for tag in (options.version, options.alias):
        if tag and (not _TAG.fullmatch(tag) or ".." in tag or tag.endswith((".", ".lock")) or _COMMIT.fullmatch(tag)):
            raise RegistrationError(f"{tag[:120]!r} cannot be a tag: up to 100 letters, digits, ., _ and -, no commit")
    context = CardContext(target.model, options.base_model, options.datasets, has_training_state=options.training_state)
    with contextlib.closing(HubModel(target.model, environ)) as repository:
        publication = _Publication(export, facts, target.branch or MAIN, options, context, repository)
        commit, existed = publication.run()
    return Registration("hub", target.model, commit, f"hf://{target.model}@{commit}", facts.digest, existed)


@dataclass
class _Publication:
    export: Export
    facts: ExportFacts
    branch: str
    options: RegistrationOptions
    context: CardContext
    repository: HubModel

    def run(self) -> tuple[str, bool]:
        """Return the commit, and whether it had existed."""
        head = self.repository.get_or_create(self.branch)
        files = uploaded_files(self.export, self.options)
        for tag in filter(None, (self.options.version, self.options.alias)):
            self.repository.require_no_branch(tag)
        commit = self._tagged(files) or head
        existed = self._has_export(commit, files)
        if not existed:
            commit, existed = self._publish_or_find(head, files)
        if self.options.version:
            self.repository.create_tag(self.options.version, commit)
        if self.options.alias:
            self.repository.move_tag(self.options.alias, commit)
        log.info("event=export_registered uri=hf://%s@%s existed=%s", self.repository.name, commit, existed)
        return commit, existed

    def _tagged(self, files: tuple[ManifestFile, ...]) -> str | None:
        """Return the commit of the version's tag. Raises RegistrationConflict if it has another export."""
        commit = self.repository.find_commit(self.options.version) if self.options.version else None
        if commit is not None and not self._has_export(commit, files):
            raise RegistrationConflict(
                f"hf://{self.repository.name}: the tag {self.options.version!r} names another commit, {commit}; "
                "choose another version"
            )
        return commit

    def _has_export(self, commit: str, files: tuple[ManifestFile, ...]) -> bool:
        """Whether a commit has this export, as its record and the digests of its files say."""
        record = self.repository.record(commit)
        # Another export, or one by other means.
        if record is None or (record.manifest, record.training_state) != (self.facts.digest, self.options.training_state):
            return False
        remote = self.repository.files(commit)
        return not any(_mismatch(file, remote.get(file.path)) for file in _published(files))

    def _publish_or_find(self, head: str, files: tuple[ManifestFile, ...]) -> tuple[str, bool]:
        """Return the new commit, or the one that another process has made of the same export meanwhile."""
        try:
            return self._publish(head, files), False
        except RegistrationConflict:  # the branch has moved
            moved = self.repository.find_commit(self.branch)
            if moved is None or not self._has_export(moved, files):
                raise
            return moved, True

    def _publish(self, head: str, files: tuple[ManifestFile, ...]) -> str:
        record, remote = self.repository.record(head), self.repository.files(head)
        for file in files:  # the Hub refuses some paths, and two files are written here
            if file.path in (RECORD, CURVE) or file.path.split("/")[0] in (".git", ".gitattributes", ".cache"):
                raise RegistrationError(
                    f"{self.export.uri_of(file)}: a repository of the hub cannot have a {file.path} of its own; rename it"
                )
        own = {path: content for path, content in self._own_files().items() if not _is_edited(path, record, remote)}
        published = _published(files)
        with fetched_files(self.export, published, self.options) as fetched:
            new = HubRecord(
                manifest=self.facts.digest,
                step=self.facts.step,
                run=self.facts.run,
                trainjob=self.facts.trainjob,
                training_state=self.options.training_state,
                files=tuple(sorted([*(file.path for file in published), *(path for path in own if path == CURVE)])),
                card=git_digest(own[CARD]) if CARD in own else "",
            )
            commit = self.repository.commit(
                _operations(fetched, {**own, RECORD: new.text()}, record, remote),
                branch=self.branch,
                parent=head,
                message=f"Step {self.facts.step}{f' of {self.facts.run}' if self.facts.run else ''}",
                description=f"Trainwright-Manifest: {self.facts.digest}",
            )
            self._verify(commit, fetched)
        return commit

    def _own_files(self) -> dict[str, bytes]:
        """Return the model card, and the picture of the loss curve if there is one."""
        curve = ""
        if self.options.draw_curve is not None:
            with contextlib.suppress(ValueError):  # no training loss was logged
                curve = self.options.draw_curve(self.facts.log_history)
        card = model_card(self.facts, replace(self.context, has_curve=bool(curve)))
        return {CARD: card.encode(), **({CURVE: curve.encode()} if curve else {})}

    def _verify(self, commit: str, fetched: FetchedFiles) -> None:
        remote = self.repository.files(commit)
        for file in fetched.files:
            found = remote.get(file.path)
            problem = _mismatch(file, found)
            if not problem and found is not None and found.git:
                problem = "" if found.git == git_digest((fetched.folder / file.path).read_bytes()) else "has other contents"
            if problem:
                raise CheckpointError(
                    f"hf://{self.repository.name}@{commit}: {file.path} {problem}; no tag was moved, publish the export again"
                )


def _operations(
    fetched: FetchedFiles, own: dict[str, bytes], record: HubRecord | None, remote: dict[str, RemoteFile]
) -> list[CommitOperationAdd | CommitOperationDelete]:
    """Return what makes the repository that of the export: files of an earlier one that this one lacks are removed."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    paths = {file.path for file in fetched.files} | own.keys()
    stale = sorted((set(record.files) if record is not None else set()) & remote.keys() - paths - {CARD, RECORD})
    return [
        *(CommitOperationAdd(file.path, str(fetched.folder / file.path)) for file in fetched.files),
        *(CommitOperationAdd(path, content) for path, content in own.items()),
        *(CommitOperationDelete(path) for path in stale),
    ]


def _published(files: tuple[ManifestFile, ...]) -> tuple[ManifestFile, ...]:
    """Without a card that a library has written into the checkpoint: the repository has its own."""
    return tuple(file for file in files if file.path != CARD)


def _is_edited(path: str, record: HubRecord | None, remote: dict[str, RemoteFile]) -> bool:
    """Whether a model card in the repository is not as it was written here, and so is left alone."""
    found = remote.get(path)
    # Ours, as far as the record says.
    if path != CARD or found is None or (record is not None and record.card and found.git == record.card):
        return False
    log.info("event=model_card_kept reason=%r", "it has been edited, or was written by others")
    return True


def _mismatch(file: ManifestFile, found: RemoteFile | None) -> str:
    """Return how a file of the repository differs, as far as its listing tells; it has a SHA-256 only if it is in LFS."""
    if found is None:
        return "is missing"
    if found.size != file.size:
        return f"has {found.size} bytes instead of {file.size}"
    return "has another SHA-256" if found.sha256 and found.sha256 != file.sha256 else ""


@dataclass(frozen=True)
class FetchedFiles:
    """Files of an export below `folder`, at their paths in the checkpoint."""

    folder: Path
    files: tuple[ManifestFile, ...]


@contextlib.contextmanager
def fetched_files(export: Export, files: tuple[ManifestFile, ...], options: RegistrationOptions) -> Iterator[FetchedFiles]:
    """Yield the files in a scratch folder that is removed afterwards.

    What an interrupted or failed registration has fetched is kept, and fetched no second time. Raises NoSpace before anything is
    fetched, CheckpointError for a corrupt file, and if there are no weights without the training state, StorageError.
    """
    digest = export.manifest.digest
    scratch = (options.scratch or Path(tempfile.gettempdir())) / f"trainwright-register-{digest.partition(':')[2][:16]}"
    with contextlib.ExitStack() as stack:
        with disk_errors(scratch):
            folder = stack.enter_context(scratch_folder(scratch, digest, keep=True))
            download_files(export, files, folder, options.start_progress)
            if not options.training_state:
                weights_only_files(checkpoint_format(export.manifest.format), folder, [Path(file.path) for file in files])
        yield FetchedFiles(folder, files)


def uploaded_files(export: Export, options: RegistrationOptions) -> tuple[ManifestFile, ...]:
    """Return the files of the manifest that are uploaded: without the training state, unless it is wanted.

    Raises CheckpointError for an unknown format.
    """
    if options.training_state:
        return export.manifest.files
    known = checkpoint_format(export.manifest.format)
    return tuple(file for file in export.manifest.files if not known.is_training_state(PurePosixPath(file.path)))
