"""One step, one TrainJob: submit, adopt, resume, the next attempt after a failure."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from factories import program_request, train_request

from trainwright.api.errors import Invalid
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of, name_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, TrainJobNameTaken, delete_job, submit_or_adopt, suspend_job

STEP = Identity("kfp", "run one", "train")


def suspend(cluster: EmbeddedCluster, name: str, value: bool) -> dict[str, Any]:
    return cluster.patch(TRAINJOB, name, {"spec": {"suspend": value}}, "default")


@pytest.mark.parametrize("owner", [None, "airflow/else"])
def test_a_job_of_somebody_else_under_that_name_is_left_alone(cluster: EmbeddedCluster, owner: str | None) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    cluster.patch(TRAINJOB, made.name, {"metadata": {"annotations": {"trainwright.dev/owner": owner}}}, "default")
    with pytest.raises(TrainJobNameTaken, match=f"belongs to {owner or 'another owner'}, not to kfp/run one/train"):
        submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))


def test_deleting_an_earlier_generation_does_not_make_a_second_job(cluster: EmbeddedCluster, set_status: Any) -> None:
    first = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    set_status(first.trainjob, "Failed")
    second = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    cluster.delete(TRAINJOB, first.name, "default")
    again = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    assert (again.adopted, again.name) == (True, second.name)
    other = submit_or_adopt(Submission(cluster, program_request(), Identity("airflow", "run one", "train"), "default"))
    assert (other.adopted, other.attempt) == (False, 1)


def test_generations_have_a_limit(cluster: EmbeddedCluster, set_status: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.jobs.submit.submit_or_adopt.MAX_ATTEMPTS", 2)
    for _ in range(2):
        set_status(submit_or_adopt(Submission(cluster, program_request(), STEP, "default")).trainjob, "Failed")
    with pytest.raises(TrainJobNameTaken, match="2 attempts exist"):
        submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))


def test_a_job_that_we_suspended_is_resumed(cluster: EmbeddedCluster) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    assert suspend_job(cluster, made.trainjob)
    assert cluster.get(TRAINJOB, made.name, "default")["spec"]["suspend"] is True
    resumed = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    assert resumed.adopted
    assert resumed.trainjob["spec"]["suspend"] is False
    assert "trainwright.dev/suspended-by" not in annotations_of(resumed.trainjob)


def test_a_job_that_somebody_else_suspended_stays_suspended(cluster: EmbeddedCluster) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    suspend(cluster, made.name, True)
    assert submit_or_adopt(Submission(cluster, program_request(), STEP, "default")).trainjob["spec"]["suspend"] is True
    # Our cancel comes on top of theirs: it is still theirs.
    assert suspend_job(cluster, made.trainjob)
    assert submit_or_adopt(Submission(cluster, program_request(), STEP, "default")).trainjob["spec"]["suspend"] is True


def test_our_mark_is_void_once_somebody_has_resumed_and_suspended_again(cluster: EmbeddedCluster) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    suspend_job(cluster, made.trainjob)
    suspend(cluster, made.name, False)
    suspend(cluster, made.name, True)
    assert submit_or_adopt(Submission(cluster, program_request(), STEP, "default")).trainjob["spec"]["suspend"] is True


def test_cancelling_what_is_gone_or_replaced_does_nothing(cluster: EmbeddedCluster) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(), STEP, "default")).trainjob
    assert delete_job(cluster, made)
    cluster.patch(TRAINJOB, name_of(made), {"metadata": {"finalizers": None}}, "default")  # as the garbage collector does
    assert not delete_job(cluster, made)
    assert not suspend_job(cluster, made)
    successor = submit_or_adopt(Submission(cluster, program_request(), STEP, "default")).trainjob
    assert name_of(successor) == name_of(made)
    assert not suspend_job(cluster, made)
    assert not delete_job(cluster, made)
    assert not cluster.get(TRAINJOB, name_of(made), "default")["spec"].get("suspend")


def test_suspending_waits_out_a_status_that_moves(cluster: EmbeddedCluster, set_status: Any) -> None:
    made = submit_or_adopt(Submission(cluster, program_request(), STEP, "default")).trainjob
    read = cluster.get
    moves = iter(range(3))

    class Moving:
        patch = staticmethod(cluster.patch)

        @staticmethod
        def get(*arguments: Any) -> dict[str, Any]:
            seen = read(*arguments)
            if next(moves, None) is not None:
                set_status(made, jobsStatus=[])
                cluster.patch(TRAINJOB, name_of(made), {"metadata": {"labels": {"moved": str(next(moves, "x"))}}}, "default")
            return seen

    assert suspend_job(Moving(), made)  # type: ignore[arg-type]
    assert submit_or_adopt(Submission(cluster, program_request(), STEP, "default")).trainjob["spec"]["suspend"] is False


def test_invalid_request_is_refused_before_anything_is_created(cluster: EmbeddedCluster) -> None:
    with pytest.raises(Invalid):
        submit_or_adopt(Submission(cluster, program_request(env={"PET_NNODES": "3"}), STEP, "default"))
    with pytest.raises(Invalid, match="has no command; set command"):
        submit_or_adopt(Submission(cluster, program_request(command=[]), STEP, "default"))
    assert cluster.list(TRAINJOB).items == []


def test_eight_at_once_make_one_trainjob(cluster: EmbeddedCluster) -> None:
    together = threading.Barrier(8)

    def submit(_number: int) -> tuple[str, bool]:
        together.wait(10)
        made = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
        return made.trainjob["metadata"]["uid"], made.adopted

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(submit, range(8)))
    assert len({uid for uid, _ in made}) == 1
    assert [adopted for _, adopted in made].count(False) == 1
    assert len(cluster.list(TRAINJOB).items) == 1


def test_submission_in_a_given_mode_costs_four_requests_once_the_cluster_is_known(cluster: EmbeddedCluster) -> None:
    asked: list[str] = []

    class Hosted:
        """As a cluster that is reached over HTTP: what it serves and its nodes are known for a while."""

        host, choice = f"https://{id(asked)}", None

        def __getattr__(self, verb: str) -> Any:
            def ask(*arguments: Any, **more: Any) -> Any:
                asked.append(verb)
                return getattr(cluster, verb)(*arguments, **more)

            return ask

    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}
    cluster.create(node)
    hosted: Any = Hosted()
    for number in range(3):
        asked.clear()
        submit_or_adopt(Submission(hosted, program_request(), Identity("o", f"run-{number}", "s"), "default"))
    assert asked == ["get", "list", "get", "create"], "the runtime, the jobs of this step, a JobSet of its name, and its job"


def saving() -> None:
    open("/workspace/output/model.pt", "wb").close()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"func": saving}, "func names /workspace"),
        ({"command": ["python", "train.py", "--out=/workspace/output"]}, "command names /workspace"),
        ({"code": "CODE", "command": ["train.py"]}, "code names /workspace"),
        ({"func": saving, "workspace": "pvc://w"}, ""),
        ({"command": ["true"]}, ""),
        ({"command": ["true"], "args": ["pvc://workspace/data", "/my-workspace", "/data/workspace", "/workspaces"]}, ""),
    ],
)
def test_a_program_whose_output_would_be_lost_is_warned_of(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    (tmp_path / "train.py").write_text("open('/workspace/output/model.pt', 'wb')")
    given = {name: str(tmp_path) if value == "CODE" else value for name, value in fields.items()}
    submit_or_adopt(
        Submission(cluster, train_request(runtime="torch-distributed", **given), Identity("kfp", "run", "train"), "default")
    )
    warnings = [record.getMessage() for record in caplog.records if "is lost with its pod" in record.getMessage()]
    assert len(warnings) == bool(said)
    assert all(said in warning for warning in warnings)
