"""Parses parameters of operators that a template may have rendered to text: flags, numbers, objects, deferrals, and names of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.operators.groups import Deferral


_FLAGS = {"true": True, "1": True, "false": False, "0": False, "": False}
LOG_POLL_INTERVAL_SECONDS = 60.0
MIN_DEFER_SECONDS = 10.0
"""An event fired sooner after the deferral can arrive before the executor's own report, and Airflow 3.3 then fails the task."""


def parse_flag(name: str, value: Any) -> bool:
    """Return a boolean; text is true, false, 1, 0 or empty. Raises ValueError naming the parameter."""
    if isinstance(value, bool):
        return value
    text = "" if value is None else str(value).strip().lower()
    if text not in _FLAGS:
        raise ValueError(f"{name}: {value!r}: expected true or false")
    return _FLAGS[text]


def parse_number(name: str, value: Any) -> float:
    """Return a finite number that is not negative; empty text is 0, and a `timedelta` is in seconds.

    Raises ValueError naming the parameter.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    try:
        number = float(str(value).strip() or 0) if value is not None else 0.0
    except ValueError:  # rejected below, as is a negative number
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(f"{name}: {value!r}: expected a number that is not negative")
    return number


def parse_object(name: str, value: Any) -> dict[str, Any]:
    """Return an object, from JSON or YAML if it is text; empty without one. Raises ValueError naming the parameter."""
    found = _parsed(name, value) or {}
    if not isinstance(found, dict):
        raise ValueError(f"{name}: expected an object, found {type(found).__name__}")
    return found


def parse_list(name: str, value: Any) -> list[Any]:
    """Return a list, from JSON or YAML if it is text; one object is a list of it. Raises ValueError naming the parameter."""
    found = _parsed(name, value) or []
    if isinstance(found, dict):  # what XCom has of a task that was mapped over one value
        found = [found]
    if not isinstance(found, list):
        raise ValueError(f"{name}: expected a list, found {type(found).__name__}")
    return found


def parse_texts(name: str, value: Any) -> list[str]:
    """Return a list of texts, from JSON or YAML if it is text; empty without one. Raises ValueError naming the parameter."""
    found = _parsed(name, value) or []
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise ValueError(f"{name}: expected a list of texts")
    return found


def _parsed(name: str, value: Any) -> Any:
    from trainwright.jobs.request.setting_values import parse_structure

    try:
        return parse_structure(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def deferral_options(given: Deferral | None) -> tuple[float, float]:
    """Return the seconds between two polls of the log, and the minimum seconds between deferral and event. Raises ValueError."""
    given = given or {}
    return (
        parse_number("deferral.log_poll_interval", given.get("log_poll_interval", LOG_POLL_INTERVAL_SECONDS)),
        parse_number("deferral.min_defer_seconds", given.get("min_defer_seconds", MIN_DEFER_SECONDS)),
    )


def warn_of_short_deferral(log: Any, min_defer_seconds: float) -> None:
    """Log a warning if the trigger may fire too soon. Nobody reads what a DAG says while it is parsed, so the task says it."""
    if min_defer_seconds < MIN_DEFER_SECONDS:
        log.warning(
            "min_defer_seconds=%g: an event within %g s can arrive before the executor's report, and Airflow 3.3 then fails the task",
            min_defer_seconds,
            MIN_DEFER_SECONDS,
        )


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
