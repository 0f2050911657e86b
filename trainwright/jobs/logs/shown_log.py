"""How far the log of a job has been shown, noted on its TrainJob: the next reader continues there, without a gap.

A triggerer that takes over a deferred task knows only what the cluster says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, uid_of
from trainwright.api.times import is_moment

MAX_PODS = 16
"""Of more pods, those with the latest lines are noted; the logs of the others are shown from their beginning again."""


def shown_until(trainjob: Obj) -> dict[str, str]:
    """Return the time of the last line that was shown of each pod, by its UID; what cannot be read counts as nothing. Pure."""
    try:
        found = json.loads(annotations_of(trainjob).get(names.LOG_SHOWN_ANNOTATION) or "{}")
    except (ValueError, RecursionError):
        return {}
    return {uid: time for uid, time in found.items() if is_moment(time)} if isinstance(found, dict) else {}


def shown_patch(trainjob: Obj, shown: Mapping[str, str]) -> Obj:
    """Return the patch that notes how far the logs of pods have been shown, of this job only. Pure."""
    latest = dict(sorted(shown.items(), key=lambda entry: entry[1])[-MAX_PODS:])
    annotations = {names.LOG_SHOWN_ANNOTATION: json.dumps(latest, separators=(",", ":"))}
    return {"metadata": {"uid": uid_of(trainjob), "annotations": annotations}}
