"""Submitting and waiting as steps of their own, with a handle between them."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from factories import program_request, train_request
from support.waiting import eventually

from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission
from trainwright.jobs.diagnosis.errors import Cancelled, TrainJobDeleted
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job
from trainwright.jobs.wait.run_step import JobHandle, submit_step, wait_step

STEP = Identity("kfp", "run", "train")
OPTIONS = train_request()


def the_job(cluster: EmbeddedCluster) -> dict[str, Any]:
    (job,) = cluster.list(TRAINJOB).items
    return job


def test_a_handle_names_one_job_and_survives_its_text(cluster: EmbeddedCluster) -> None:
    handle = submit_step(Submission(cluster, program_request(workspace="pvc://w"), STEP, "default"))
    assert JobHandle.parse(handle.model_dump_json()) == handle
    assert (handle.namespace, handle.folder, handle.has_results) == ("default", "runs/run", False)
    assert handle.uid == the_job(cluster)["metadata"]["uid"]
    assert submit_step(Submission(cluster, program_request(workspace="pvc://w"), STEP, "default")) == handle, "a retry adopts"


@pytest.mark.parametrize("text", ["", "train-1", "{}", '{"name": "a", "password": "hunter2"}', "[1]"])
def test_invalid_handles_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the handle of a TrainJob"):
        JobHandle.parse(text)


def test_a_job_that_is_gone_or_another_one_is_not_waited_for(cluster: EmbeddedCluster) -> None:
    handle = submit_step(Submission(cluster, train_request(), STEP, "default"))
    cluster.delete(TRAINJOB, handle.name, "default")
    with pytest.raises(TrainJobDeleted, match="no longer exists"):
        wait_step(cluster, handle, OPTIONS)
    submit_step(Submission(cluster, train_request(), STEP, "default"))
    with pytest.raises(TrainJobDeleted, match="and created again since"):
        wait_step(cluster, handle, OPTIONS)


def test_a_retry_of_the_wait_resumes_what_its_cancellation_suspended(cluster: EmbeddedCluster, set_status: Any) -> None:
    handle = submit_step(Submission(cluster, train_request(), STEP, "default"))
    cancel_owned_job(cluster, the_job(cluster), CancelPolicy.suspend, timeout_seconds=0)
    assert the_job(cluster)["spec"]["suspend"] is True

    def complete() -> None:
        eventually(lambda: the_job(cluster)["spec"]["suspend"] is False, what="the job goes on")
        set_status(the_job(cluster), "Complete")

    threading.Thread(target=complete).start()
    assert wait_step(cluster, handle, OPTIONS).trainjob == handle.name


def test_a_signal_suspends_the_job(cluster: EmbeddedCluster) -> None:
    handle = submit_step(Submission(cluster, program_request(waiter_lease_seconds=0), STEP, "default"))

    before = signal.getsignal(signal.SIGTERM)

    def kill() -> None:
        eventually(lambda: signal.getsignal(signal.SIGTERM) != before, what="the wait has begun")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=kill).start()
    with pytest.raises(Cancelled, match="is suspended"):
        wait_step(cluster, handle, OPTIONS)
    assert the_job(cluster)["spec"]["suspend"] is True
