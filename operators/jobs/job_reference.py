"""Names a TrainJob between two tasks: the XCom of a task that only submits, and what a sensor makes of it, or of a plain name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.operators.values.rendered_values import parse_object


@dataclass(frozen=True)
class JobReference:
    """A TrainJob. Empty, or None, is what is not known: a plain name says nothing but the name.

    `uid` tells it from a later job of the same name, `submission_mode` is where it was submitted, `folder` the run's folder on its
    workspace, `has_results` whether its program reports a result.
    """

    name: str
    namespace: str = ""
    uid: str = ""
    submission_mode: str = ""
    folder: str | None = None
    has_results: bool | None = None

    @classmethod
    def parse(cls, given: Any) -> JobReference:
        """Read a name, the XCom of TrainJobOperator, or its JSON. Raises ValueError."""
        if isinstance(given, str) and not given.lstrip().startswith("{"):
            found: dict[str, Any] = {"trainjob": given.strip()}
        else:
            found = parse_object("trainjob", given)
        if not (name := found.get("trainjob")):  # a template that renders to nothing
            raise ValueError("trainjob: expected the name of a TrainJob, or the XCom of TrainJobOperator; it is empty")
        return cls(
            str(name),
            str(found.get("namespace") or ""),
            str(found.get("uid") or ""),
            str(found.get("submission_mode") or ""),
            found.get("folder"),
            found.get("has_results"),
        )

    def as_xcom(self) -> dict[str, Any]:
        """The XCom of a task that has submitted the job, with the keys that all operators use."""
        return {
            "trainjob": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "submission_mode": self.submission_mode,
            "folder": self.folder or "",
            "has_results": bool(self.has_results),
        }
