"""A run as its first step returns it: where its steps are done, and the settings of each, checked. The others take it whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from trainwright.jobs.request.invalid_settings import within
from trainwright.jobs.request.setting import Settings, setting
from trainwright.jobs.request.setting_types import GROUP, Object
from trainwright.jobs.request.setting_values import parse_group
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.workspace import Workspace
from trainwright.steps.requests.data import InitializeDataset, PreprocessDataset
from trainwright.steps.requests.exports import EvaluateExport, ExportCheckpoint, PromoteModel, RegisterModel
from trainwright.steps.requests.step_request import FilesJob


@dataclass(frozen=True, kw_only=True)
class RunSteps(Settings):
    """The settings of the steps of a run, as far as they were given; what the chain itself fills in is missing."""

    training: Annotated[TrainRequest, GROUP] = setting("Of the training.", TrainRequest())
    data: Annotated[InitializeDataset, GROUP] = setting("Of the dataset.", InitializeDataset())
    preprocessing: Annotated[PreprocessDataset, GROUP] = setting("Of its preprocessing.", PreprocessDataset())
    export: Annotated[ExportCheckpoint, GROUP] = setting("Of the export.", ExportCheckpoint())
    evaluation: Annotated[EvaluateExport, GROUP] = setting("Of the evaluation.", EvaluateExport())
    promotion: Annotated[PromoteModel, GROUP] = setting("Of the promotion.", PromoteModel())
    registration: Annotated[RegisterModel, GROUP] = setting("Of the registration.", RegisterModel())


@dataclass(frozen=True, kw_only=True)
class RunPlace(Settings):
    """Where and how the steps of a run are done: given among the settings of its training."""

    run_id: str = setting("Id of the run; reusing it resumes the run.", "")
    namespace: str = setting("Namespace of the run. Empty: that of the credentials.", "")
    submission_mode: Literal["", "auto", "trainjob", "jobset"] = setting(
        "auto, trainjob or jobset. Empty: TRAINWRIGHT_SUBMISSION_MODE, else auto, which depends on the cluster.", ""
    )
    workspace_path: str = setting("Where the steps mount the workspace; empty if they do not.", "", place="uri")
    runs_on: Literal["auto", "worker", "cluster"] = setting("Where steps of files are done: auto, worker or cluster.", "auto")
    job: Annotated[FilesJob, GROUP] = setting("The jobs of steps of files.", FilesJob())
    hub_conn_id: str = setting("Connection of Airflow with the token of the hub.", "")


@dataclass(frozen=True, kw_only=True)
class Run(RunSteps, RunPlace):
    """A run that was started: a step gets it instead of `run_id`, `workspace`, `workspace_path`, `namespace` and its settings."""

    own: Object = setting("Settings of the chain itself, which its defaults name.", {})
    claim: str = setting("Name of the claim, for mounting.", "")
    workspace: str = setting("The workspace, as TrainJobs mount it.", "", place="uri")

    def training_with(self, request: TrainRequest) -> TrainRequest:
        """Return the training of the run with the settings of its step, and in the run's workspace unless these name another one.

        Raises InvalidSettings for a setting that both have, with different values.
        """
        found = self.training.joined(request)
        if self.workspace and found.workspace is None:
            found = found.having(workspace=Workspace.parse(self.workspace))
        return found

    @classmethod
    def of_step(cls, run: Any, **apart: Any) -> Self:
        """Return the run of a step: what the first step has returned, as an object or its JSON, and what this one was given apart.

        What was given apart wins. Raises InvalidSettings.
        """
        mine = cls.parse_some({name: value for name, value in apart.items() if value not in ("", None)})
        with within("run"):
            return mine.over(cls.parse_some(parse_group(run) or {}, context={"reads_files": False}))
