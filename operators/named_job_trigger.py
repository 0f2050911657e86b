"""Waits for a TrainJob of which only the name is known: the trigger of a sensor that starts in the triggerer, without a worker."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from trainwright.cluster.protocol import Cluster
from trainwright.jobs import TrainRequest
from trainwright.jobs.submit.adoption import resume_if_suspended_by_us
from trainwright.jobs.wait.waiting import deadlines_of
from trainwright.operators.trigger import TrainJobTrigger, threads
from trainwright.operators.values.rendered_values import LOG_POLL_INTERVAL_SECONDS, MIN_DEFER_SECONDS, warn_of_short_deferral
from trainwright.steps.ends.change_jobs import job_named
from trainwright.submission.jobs_client import JobsClient


def missing_job(namespace: str, name: str) -> str:
    """The message about a job that does not exist."""
    return f"there is no TrainJob {namespace}/{name}: it was not submitted there, or has been deleted"


def resumes(on_cancel: str, try_number: int) -> bool:
    """Whether a sensor resumes a job that Trainwright has suspended: always with an `on_cancel` that stops jobs, else in a retry."""
    return on_cancel != "keep" and (bool(on_cancel) or try_number > 1)


class NamedTrainJobTrigger(TrainJobTrigger):
    """As TrainJobTrigger, for the job that has the name when the trigger starts.

    :param trainjob: name of the TrainJob.
    :param namespace: its namespace; defaults to the connection's.
    :param submission_mode: auto, trainjob or jobset; defaults to the connection's.
    :param conn_id: connection, as in the operator.
    :param on_cancel: as in the sensor.
    :param min_defer_seconds: as in TrainJobTrigger, like log_poll_interval.
    :param waiting: the groups `limits` and `logging`, as they are given to the sensor; they are parsed here.
    """

    def __init__(
        self,
        *,
        trainjob: str,
        namespace: str = "",
        submission_mode: str = "",
        conn_id: str | None = None,
        on_cancel: str = "",
        min_defer_seconds: float = MIN_DEFER_SECONDS,
        log_poll_interval: float = LOG_POLL_INTERVAL_SECONDS,
        waiting: dict[str, Any] | None = None,
    ):
        super().__init__(
            conn_id=conn_id,
            namespace=namespace,
            name=trainjob,
            uid="",
            task={},
            on_cancel=on_cancel or "suspend",
            on_clear="keep",
            min_defer_seconds=min_defer_seconds,
            submission_mode=submission_mode,
            log_poll_interval=log_poll_interval,
        )
        self._waiting = waiting or {}
        self._given = {"trainjob": trainjob, "namespace": namespace, "submission_mode": submission_mode, "waiting": self._waiting}
        self._given_on_cancel = on_cancel

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As it was created: what it finds out about the job is found out again by the next triggerer."""
        more = {
            "on_cancel": self._given_on_cancel,
            "min_defer_seconds": self.min_defer_seconds,
            "log_poll_interval": self.log_poll_interval,
        }
        path = "trainwright.operators.named_job_trigger.NamedTrainJobTrigger"
        return path, {**self._given, "conn_id": self.conn_id, **more}

    async def _end(self) -> dict[str, Any]:
        warn_of_short_deferral(self.log, self.min_defer_seconds)  # no worker has run the task
        if (ti := self.task_instance) is not None:
            self.task_key = {name: getattr(ti, name) for name in ("dag_id", "task_id", "run_id", "map_index")}
        cluster = await self.connected()
        # The worker raises it as the error of the task.
        if not await asyncio.get_running_loop().run_in_executor(threads, self._find, cluster):
            return {"outcome": "deleted", "message": missing_job(self.namespace, self.name)}
        return await super()._end()

    def _find(self, cluster: Cluster) -> bool:
        """Read the settings and the job, and resume it as the sensor does. Returns whether it exists. Raises ApiError, NoCluster."""
        options = TrainRequest.parse(self._waiting)
        limits, logging = options.limits, options.logging
        self.deadlines, self.logs, self.log_bytes = asdict(deadlines_of(options)), logging.words, logging.log_bytes
        self.fail_if_stuck, self.lost_node_timeout_seconds = limits.fail_if_stuck, limits.lost_node_timeout_seconds
        self.fail_on_divergence = limits.fail_on_divergence
        self.namespace = self.namespace or JobsClient.of(cluster).default_namespace
        found = job_named(cluster, self.name, self.namespace)
        if found is None:
            return False
        if (ti := self.task_instance) is not None and resumes(self._given_on_cancel, int(ti.try_number)):
            resume_if_suspended_by_us(found.cluster, found.trainjob)
        self.uid, self.submission_mode = found.trainjob["metadata"]["uid"], str(found.cluster.mode)
        return True
