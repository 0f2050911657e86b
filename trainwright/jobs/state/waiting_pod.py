"""New."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, labels_of, name_of, namespace_of, owners_of, uid_of
from trainwright.api.rules.metadata import is_subdomain, label_value_fault
from trainwright.jobs.state.workflow import POD_NODE_ANNOTATION, POD_RUN_LABEL, WORKFLOW

NOTE_CHARACTERS = 2048
"""Of a note on a job: four times as many as usual."""


MOST_RUNS = 20
"""That are asked about for one job. Anyone may write owners, thousands of them, and each costs a request."""


_TRY = re.compile(r"\(\d+\)")


@dataclass(frozen=True)
class WaitingPod:
    """The pod that waits for a job. `run` is the label of all pods of its pipeline run, and `step` the name of its node of Argo
    without tries: another pod with both is another try. `workflow` and its UID are empty for a pod that no workflow owns.
    """

    namespace: str
    name: str
    uid: str
    run: str = ""
    step: str = ""
    workflow: str = ""
    workflow_uid: str = ""

    @classmethod
    def of(cls, pod: Obj, workflow: str = "", workflow_uid: str = "") -> WaitingPod:
        """Return the note of a pod that a workflow owns."""
        run, step = step_of(pod)
        return cls(namespace_of(pod), name_of(pod), uid_of(pod), run, step, workflow, workflow_uid)

    def as_text(self) -> str:
        """Return the value of the annotation."""
        return json.dumps({key: value for key, value in asdict(self).items() if value}, separators=(",", ":"))


def waiting_pod_of(trainjob: Obj) -> WaitingPod | None:
    """Return the pod that waits for a job; None if none is noted, or the note cannot be read, or no pod can have its names.

    Anyone may write annotations, and the lease decides then: so it reads no long text, and asks no server for impossible names.
    """
    text = annotations_of(trainjob).get(names.WAITING_POD_ANNOTATION, "")
    if len(text) > NOTE_CHARACTERS:
        return None
    try:
        pod = WaitingPod(**{str(key): str(value) for key, value in json.loads(text).items()})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    are_names = all(map(is_subdomain, (pod.namespace, pod.name, pod.workflow or pod.name)))
    return pod if are_names and not label_value_fault(pod.run) else None


def step_of(pod: Obj) -> tuple[str, str]:
    """Return the run and the step that a pod is a try of, both empty if it does not tell."""
    return labels_of(pod).get(POD_RUN_LABEL, ""), _TRY.sub("", annotations_of(pod).get(POD_NODE_ANNOTATION, ""))


def waiter_notes(on_cancel: str, waiting_pod: str) -> dict[str, str | None]:
    """Return the annotations that tell who waits for a job; None for those that are removed of an earlier waiter."""
    return {names.ON_CANCEL_ANNOTATION: on_cancel, names.WAITING_POD_ANNOTATION: waiting_pod or None}


@dataclass(frozen=True)
class Run:
    """The workflow of a run that waits for a job, or has done so."""

    namespace: str
    name: str
    uid: str


def runs_of(trainjob: Obj) -> tuple[Run, ...]:
    """Return the runs whose ends decide about a job: that of the pod that waits, and those that own the job.

    Several runs may have adopted it; with more than `MOST_RUNS` the lease decides. Without a noted pod, whoever waits now is
    elsewhere: no run tells anything about it.
    """
    pod = waiting_pod_of(trainjob)
    owners = [owner for owner in owners_of(trainjob) if owner.get("kind") == WORKFLOW.kind]
    if pod is None or not pod.workflow_uid or len(owners) > MOST_RUNS:
        return ()
    owning = (Run(namespace_of(trainjob), str(owner.get("name")), str(owner.get("uid"))) for owner in owners)
    return tuple({run.uid: run for run in (*owning, Run(pod.namespace, pod.workflow, pod.workflow_uid))}.values())


def is_waited_for(pod: WaitingPod, pods: Mapping[str, tuple[str, str]]) -> bool:
    """Whether one of these pods, by UID with their `step_of`, is the one that waits, or another try of its step."""
    return pod.uid in pods or bool(pod.run and pod.step and (pod.run, pod.step) in pods.values())
