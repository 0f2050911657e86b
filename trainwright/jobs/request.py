"""What somebody wants trained: a checked request, the same from a KFP component, an Airflow operator or the command line."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trainwright.api.hub_names import with_scheme
from trainwright.api.names import QUEUE_LABEL
from trainwright.jobs.literal_secrets import refuse_literals
from trainwright.jobs.resume import AUTO, checked_resume
from trainwright.jobs.scheduling import Topology, scheduling_problems
from trainwright.jobs.variables import Variables, reference_problems
from trainwright.jobs.workspace import Workspace


class TrainRequest(BaseModel):
    """One training job. Empty values leave the runtime's own in place.

    Credentials come by reference only: a literal that looks like one raises LiteralSecret.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    runtime: Annotated[str, Field(min_length=1, max_length=253)]
    runtime_kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = "ClusterTrainingRuntime"
    dataset_uri: str = ""
    dataset_env: Variables = {}
    dataset_secret: str = ""
    """Name of a Secret whose keys become variables of the dataset initializer."""
    model_uri: str = ""
    model_env: Variables = {}
    model_secret: str = ""
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: Variables = {}
    num_nodes: Annotated[int, Field(ge=1, le=100000)] | None = None
    num_proc_per_node: Annotated[int, Field(ge=1)] | None = None
    resources_per_node: dict[str, dict[str, str]] = {}
    """`{"limits": {...}, "requests": {...}}`."""
    workspace: str = ""
    """`pvc://CLAIM[/FOLDER]`: mounted where the runtime mounts its volume `initializer`.

    With `?size=20Gi&class=NAME&access=ReadWriteMany&retain=keep` (all but `size` optional) the claim is made where it is not.
    """
    resume: str = AUTO
    """Where a new job goes on from: `auto` (the last whole checkpoint), `never`, or the URI of an exported checkpoint."""
    resume_secret: str = ""
    """Name of a Secret with what reads that export, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
    earlier: Literal["keep", "delete"] = "keep"
    """What becomes of ended earlier generations of the step once the next one is submitted."""
    queue_name: str = ""
    """A LocalQueue of Kueue: the job is created suspended, and starts when the queue admits it."""
    priority_class: str = ""
    """A WorkloadPriorityClass of that queue."""
    topology: str = ""
    """`required:KEY`, `preferred:KEY` or `unconstrained` for Kueue, `exclusive:KEY` for the JobSet; KEY is a label of nodes."""
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []
    """As a pod has them, besides those of the runtime. This, `node_selector` and `affinity` are for the training steps."""
    affinity: dict[str, Any] = {}
    active_deadline_seconds: Annotated[int, Field(ge=1)] | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}

    @model_validator(mode="before")
    @classmethod
    def _no_credentials(cls, fields: Any) -> Any:
        """Before all else: what is refused here is in no other error."""
        if isinstance(fields, dict):
            refuse_literals(fields)
        return fields

    @field_validator("env", "dataset_env", "model_env")
    @classmethod
    def _variables_are_known(cls, variables: Variables) -> Variables:
        for name, value in variables.items():
            if isinstance(value, dict) and (told := "; ".join(reference_problems(name, value))):
                raise ValueError(told)
        return variables

    @field_validator("workspace")
    @classmethod
    def _workspace_is_claim(cls, value: str) -> str:
        if value:
            Workspace.parse(value)
        return value

    @field_validator("resume")
    @classmethod
    def _resume_is_known(cls, value: str) -> str:
        return checked_resume(value)

    @field_validator("topology")
    @classmethod
    def _topology_is_known(cls, value: str) -> str:
        if value:
            Topology.parse(value)
        return value

    @model_validator(mode="after")
    def _can_be_scheduled(self) -> TrainRequest:
        queue = self.labels.get(QUEUE_LABEL, "")
        if self.queue_name and queue and queue != self.queue_name:
            raise ValueError(f"queue_name: {self.queue_name!r}, and the label {QUEUE_LABEL} says {queue!r}")
        problems = scheduling_problems(
            queue=self.queue_name or queue,
            priority_class=self.priority_class,
            topology=self.topology,
            tolerations=self.tolerations,
            affinity=self.affinity,
        )
        if told := "; ".join(problems):
            raise ValueError(told)
        return self

    @field_validator("dataset_uri", "model_uri")
    @classmethod
    def _is_uri(cls, value: str) -> str:
        value = with_scheme(value)
        if value and not re.match(r"^[A-Za-z][A-Za-z0-9+.-]*://.+$", value):
            raise ValueError(f"{value!r} is not a URI such as hf://org/name or file:///path")
        return value
