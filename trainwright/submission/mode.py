"""The submission modes: whether TrainJobs are submitted as TrainJobs, or as JobSets if no controller handles TrainJobs.

`trainwright.submission.connect` chooses one for a cluster; an argument, a connection or TRAINWRIGHT_SUBMISSION_MODE overrides it.
"""

from __future__ import annotations

import enum
import os

from trainwright.cluster.connect import NoCluster

VARIABLE = "TRAINWRIGHT_SUBMISSION_MODE"


class Mode(enum.StrEnum):
    auto = "auto"
    trainjob = "trainjob"
    jobset = "jobset"
    embedded = "embedded"


class UnknownMode(NoCluster, ValueError):
    """The requested mode does not exist: bad input, found before any connection."""


def requested_mode(given: str = "") -> Mode:
    """Return the requested mode: the argument, else TRAINWRIGHT_SUBMISSION_MODE, else auto. Raises UnknownMode."""
    text, where = (given, "submission mode") if given else (os.environ.get(VARIABLE) or Mode.auto, VARIABLE)
    if text not in list(Mode):
        raise UnknownMode(f"{where}: {text[:40]!r} is not one of {', '.join(Mode)}")
    return Mode(text)
