"""Plans what a submission creates, from the request, the runtime and the previous attempt. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.objects import Obj, name_of
from trainwright.api.rules.idle_settings import idle_settings
from trainwright.jobs.request.code_package import PackedCode
from trainwright.jobs.request.manifest import NO_PREVIOUS, PreviousAttempt, trainjob_manifest
from trainwright.jobs.request.resume import has_resume_point, prefers_own_checkpoint, resume_warnings
from trainwright.jobs.request.store_variables import has_store_variables
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import Identity


@dataclass(frozen=True)
class SubmissionPlan:
    """`trainjob` is the manifest, `nodes` the number of training nodes; `warnings` apply to a new job, not to an adopted one."""

    trainjob: Obj
    nodes: int
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return name_of(self.trainjob)


def plan_submission(
    request: TrainRequest,
    identity: Identity,
    namespace: str,
    runtime: Obj,
    *,
    attempt: int = 1,
    previous: PreviousAttempt = NO_PREVIOUS,
    export: str = "",
    code: PackedCode | None = None,
) -> SubmissionPlan:
    """Plan the TrainJob of an attempt.

    `previous` is the previous attempt, `export` the URI of the run's latest exported checkpoint ("" for none), `code` the packed
    code of the request. Neither the attempt number nor `previous` nor `export` changes the spec digest, by which existing jobs are
    compared. Raises ValueError for settings that no builtin trainer accepts.
    """
    warnings = list(resume_warnings(runtime, request.resume, attempt))
    if has_store_variables(export) and not request.secret_for_resume:
        warnings.append(f"without resume_secret or store_secret the pods cannot read the export {export}")
        export = ""
    trainjob = trainjob_manifest(request, identity, namespace, runtime, attempt, code, previous=previous, export=export)
    warnings += idle_settings(trainjob, runtime)
    return SubmissionPlan(trainjob, nodes_of(request, runtime), tuple(warnings))


def can_resume_from_export(request: TrainRequest, runtime: Obj) -> bool:
    """Whether a new job resumes from the latest export of its run, if the volume has no checkpoint."""
    return prefers_own_checkpoint(request.resume) and has_resume_point(runtime)


def resumes_from_previous(request: TrainRequest, runtime: Obj, *, was_preempted: bool) -> bool:
    """Whether a new job also resumes from the checkpoints of its preempted predecessor, although `resume` says otherwise."""
    return was_preempted and not prefers_own_checkpoint(request.resume) and has_resume_point(runtime)


def nodes_of(request: TrainRequest, runtime: Obj) -> int:
    """Return the number of training nodes: the request's, else the runtime's."""
    given = request.manifest["spec"].get("trainer") or {} if request.manifest is not None else {}
    return request.num_nodes or given.get("numNodes") or int((runtime["spec"].get("mlPolicy") or {}).get("numNodes") or 1)
