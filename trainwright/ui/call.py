"""What endpoints of the page's API deal with: a request, how they are declared, and their errors as responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from trainwright.api.errors import ApiError
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint, PromotionConflict
from trainwright.cluster.connect import NoCluster
from trainwright.initializers import InitializerError
from trainwright.jobs.diagnosis.errors import TrainJobError
from trainwright.runtimes import RuntimeNotFound
from trainwright.storage.errors import StorageError
from trainwright.text.foreign_texts import one_line
from trainwright.ui.launches.launches import Launches
from trainwright.ui.sessions import Session
from trainwright.workspace.layout import WorkspaceError

Json = dict[str, Any]
MAX_NAME = 253
"""Characters of a Kubernetes name."""
_MAX_MESSAGE = 4000


@dataclass(frozen=True)
class Page:
    """The settings of a server. Without `may_read_files` it runs in a cluster, for users who log in with tokens: it reads no files or
    stores with its own rights."""

    exports: tuple[str, ...] = ()
    """URIs of folders of exports."""
    workspaces: tuple[Path, ...] = ()
    """Folders below which this machine has workspaces, or that are one."""
    claims: Callable[[], Mapping[str, Path]] = dict
    """Returns the folders of claims elsewhere, by `NAMESPACE/CLAIM`."""
    file_roots: tuple[Path, ...] = ()
    """Folders below which `file://` URIs may be read."""
    may_read_files: bool = False
    new_exports: str = ""
    """URI of the folder of exports that the form begins with; empty for one in the workspace."""
    sessions: Path | None = None
    """File of the sessions of the page's owner, which then outlive the server."""
    orchestrators: Mapping[str, str] = field(default_factory=dict)
    """Addresses of Airflow and KFP, as `airflow` and `kfp`, for links to runs."""
    launches: Launches | None = None
    """Fine-tunings that the form starts; None if it only writes text."""


@dataclass(frozen=True)
class Call:
    """An authenticated request."""

    session: Session
    page: Page
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The namespace in the path, else in the query, else that of the connection."""
        return self.path.get("namespace") or self.query.get("namespace") or self.session.cluster.default_namespace

    def text(self, name: str, *, limit: int = MAX_NAME) -> str:
        """Return a text of the body. Raises ValueError if it is missing, no text, or too long."""
        value = self.body.get(name)
        if not isinstance(value, str) or not value or len(value) > limit:
            raise ValueError(f"{name}: expected a text of at most {limit} characters")
        return value


@dataclass(frozen=True)
class Endpoint:
    """`answer` is called in a thread; its typed errors become responses."""

    method: str
    path: str
    answer: Callable[[Call], Any]


@dataclass(frozen=True)
class Stream:
    """A stream of JSON objects, one per line. `open` returns a generator, which is closed when the client goes away."""

    path: str
    open: Callable[[Call], AsyncGenerator[Json, None]]


class Problem(NamedTuple):
    """The response to an error: its status code, the name of its type, and its message."""

    code: int
    reason: str
    message: str


EXPECTED = (
    ApiError,
    CheckpointError,
    InitializerError,
    NoCluster,
    RuntimeNotFound,
    StorageError,
    TrainJobError,
    ValueError,
    WorkspaceError,
)
"""Errors with a message for users; every other one is a defect, which is logged."""


_CODES: dict[type[BaseException], int] = {
    NoCheckpoint: 404,
    RuntimeNotFound: 404,
    PromotionConflict: 409,
    TrainJobError: 409,
    ValueError: 400,
    WorkspaceError: 400,
}


def problem_of(error: BaseException) -> Problem:
    """Return the response to an error among EXPECTED."""
    message = str(getattr(error, "message", "") or error)[:_MAX_MESSAGE]
    if isinstance(error, ApiError):
        return Problem(error.code, type(error).__name__, message)
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return Problem(code, type(error).__name__, message)
    return Problem(502, type(error).__name__, one_line(message))
