"""A model repository of the Hugging Face Hub, through `huggingface_hub`: its commits, files and tags, with typed errors.

The token comes from HF_TOKEN or ACCESS_TOKEN alone, never from a login on this machine: what is published is published by someone.
`trainwright.json` in the repository says which export its files come from, and which files those are. It is in the files, not in
the commit's message, so that it survives a squashed history, a copy and a download of the repository.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from trainwright.checkpoints.registries.registration import RegistrationConflict, RegistrationError
from trainwright.storage.errors import StorageError, Transient, Unreachable
from trainwright.storage.http.client import HttpClient, HttpError
from trainwright.storage.http.hub_environment import http_library, hub_endpoint, is_set
from trainwright.storage.uri import checked_address
from trainwright.text.foreign_texts import without_credentials

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete


MAIN = "main"
_PUBLIC = "https://huggingface.co"
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
RECORD = "trainwright.json"
MAX_RECORD = 16 * 1024 * 1024
"""Bytes: a hundred thousand files."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a commit: its size in bytes, and its SHA-256, or, if it is not in LFS, its Git digest."""

    size: int
    sha256: str = ""
    git: str = ""


class HubModel:
    """One model repository `name`. Every method raises RegistrationError, RegistrationConflict, StorageError."""

    def __init__(self, name: str, environ: Mapping[str, str]):
        from huggingface_hub import HfApi

        self.name = name
        self._endpoint = hub_endpoint(environ)
        checked_address(self._endpoint, environ)
        self._token = environ.get("ACCESS_TOKEN", "").strip() or environ.get("HF_TOKEN", "").strip()
        if not self._token:
            raise RegistrationError(f"hf://{name}: publishing needs a token that may write there: set HF_TOKEN")
        self._needs_plain_uploads = self._endpoint != _PUBLIC and not is_set(environ, "HF_HUB_DISABLE_XET")
        self._client = HttpClient(token=self._token, token_for=self._endpoint, environ=environ)
        self._api = HfApi(endpoint=self._endpoint, token=self._token, library_name="trainwright")

    def find_commit(self, revision: str) -> str | None:
        """Return the commit of a branch, a tag or a commit; None if the repository has no such revision."""
        from huggingface_hub.errors import RevisionNotFoundError

        with self._errors():
            try:
                return str(self._api.model_info(self.name, revision=revision).sha)
            except RevisionNotFoundError:
                return None

    def get_or_create(self, branch: str) -> str:
        """Return the head of a branch. A missing repository is created, private, and so is a missing branch."""
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._errors():
            try:
                self._api.model_info(self.name)
            except RepositoryNotFoundError:
                self._api.create_repo(self.name, private=True, exist_ok=True)
        head = self.find_commit(branch)
        if head is None and branch != MAIN:
            with self._errors():
                self._api.create_branch(self.name, branch=branch, exist_ok=True)
            head = self.find_commit(branch)
        if head is None:
            raise RegistrationError(f"hf://{self.name}: the hub names no commit for the branch {branch!r}")
        return head

    def files(self, commit: str) -> dict[str, RemoteFile]:
        """Return the files of a commit by path."""
        from huggingface_hub.hf_api import RepoFile

        with self._errors():
            entries = [
                entry
                for entry in self._api.list_repo_tree(self.name, recursive=True, revision=commit)
                if isinstance(entry, RepoFile)
            ]
        return {
            each.path: RemoteFile(each.size, sha256=each.lfs.sha256 if each.lfs else "", git="" if each.lfs else each.blob_id)
            for each in entries
        }

    def record(self, commit: str) -> HubRecord | None:
        """Return what an earlier registration has recorded in a commit, or None."""
        try:
            content = self._client.read(f"{self._endpoint}/{self.name}/resolve/{commit}/{RECORD}", MAX_RECORD)
        except HttpError as error:  # only a missing record is an answer
            if error.status == 404:
                return None
            raise self._converted(error.status, str(error)) from None
        return HubRecord.parse(content)

    def commit(
        self,
        operations: Sequence[CommitOperationAdd | CommitOperationDelete],
        *,
        branch: str,
        parent: str,
        message: str,
        description: str,
    ) -> str:
        """Upload the files and publish all operations as one commit on `parent`. Returns the new commit.

        Raises RegistrationConflict if the branch has moved; then nothing is changed.
        """
        from huggingface_hub import CommitOperationAdd

        additions = [each for each in operations if isinstance(each, CommitOperationAdd)]
        with self._errors():
            # An empty .gitignore: the one of the repository would silently leave files out.
            self._api.preupload_lfs_files(
                self.name, additions, revision=branch, gitignore_content="", free_memory=False, num_threads=4
            )
            done = self._api.create_commit(
                self.name,
                operations,
                commit_message=message,
                commit_description=description,
                revision=branch,
                parent_commit=parent,
            )
        return str(done.oid)

    def create_tag(self, tag: str, commit: str) -> None:
        """Create a tag; one that exists has to name this commit."""
        existing = self.find_commit(tag)
        if existing is None:
            with self._errors():
                self._api.create_tag(self.name, tag=tag, revision=commit, exist_ok=True)
            existing = self.find_commit(tag)
        if existing != commit:
            raise RegistrationConflict(f"hf://{self.name}: {tag!r} names the commit {existing}, not {commit}")

    def move_tag(self, tag: str, commit: str) -> None:
        """Let a tag name the commit. The Hub cannot move one, so for a moment there is none."""
        existing = self.find_commit(tag)
        if existing == commit:  # a tag that is deleted and created would be gone for a moment
            return
        if existing is not None:
            with self._errors():
                self._api.delete_tag(self.name, tag=tag)
        self.create_tag(tag, commit)

    def require_no_branch(self, tag: str) -> None:
        """Refuse a tag with the name of a branch: revisions would be ambiguous."""
        with self._errors():
            branches = [branch.name for branch in self._api.list_repo_refs(self.name).branches]
        if tag in branches:
            raise RegistrationConflict(f"hf://{self.name}: {tag!r} is a branch, and cannot be a tag as well; choose another name")

    def close(self) -> None:
        self._client.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert the errors of the client. Their texts may have addresses with signatures."""
        from huggingface_hub.errors import HfHubHTTPError

        try:
            yield
        except HfHubHTTPError as error:
            raise self._converted(error.response.status_code, error) from None
        except http_library().HTTPError as error:
            raise Unreachable(f"hf://{self.name}: the hub cannot be reached: {self._shown(error)}") from None
        except (ValueError, LookupError, RuntimeError, OSError) as error:  # of the client itself, and of its transfer library
            if isinstance(error.__cause__, HfHubHTTPError):  # of one of its threads
                raise self._converted(error.__cause__.response.status_code, error.__cause__) from None
            raise StorageError(f"hf://{self.name}: the hub's client fails: {self._shown(error)}{self._hint(error)}") from None

    def _converted(self, status: int, error: object) -> Exception:
        where, said = f"hf://{self.name}", self._shown(error)
        if status in (409, 412):
            return RegistrationConflict(f"{where} was changed meanwhile, and nothing was published: {said}; try again")
        if status in (401, 403):
            return RegistrationError(f"{where}: the hub refuses the token, or it may not write there; check HF_TOKEN: {said}")
        text = f"{where}: the hub answers with status {status}: {said}{self._hint(error)}"
        return Transient(text) if status in _TRANSIENT else RegistrationError(text)

    def _hint(self, error: object) -> str:
        if self._needs_plain_uploads and "xet" in str(error).lower():
            return "; the hub does not speak Xet: set HF_HUB_DISABLE_XET=1"
        return ""

    def _shown(self, error: object) -> str:
        text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
        return without_credentials(text.replace(self._token, "***"))


class HubRecord(BaseModel):
    """`manifest` is the digest of the export's manifest, `files` are the paths that were uploaded, without this file and the card.

    `card` is the Git digest of the model card, by which an edited one is recognised; empty if another's was left in place.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1
    manifest: str
    step: int = 0
    run: str = ""
    trainjob: str = ""
    training_state: bool = False
    files: tuple[str, ...] = ()
    card: str = ""

    def text(self) -> bytes:
        return self.model_dump_json(indent=1).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> HubRecord | None:
        """Return the record, or None for any other file."""
        try:
            return cls.model_validate_json(content)
        except ValidationError:  # a file of somebody else
            return None


def git_digest(content: bytes) -> str:
    """Return the digest by which Git, and so the Hub, names a file that is not in LFS."""
    digest = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()
