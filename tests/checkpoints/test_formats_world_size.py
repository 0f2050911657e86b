"""Random states are counted against the number of ranks of the job that wrote a checkpoint, and of no other job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_files import torch_file

from trainwright.api.names import RESUME_JOB_VARIABLE
from trainwright.checkpoints.find import find_checkpoints
from trainwright.checkpoints.job_record import JOBS, Writer, record_writer, recorded_writers, trained_world_size
from trainwright.checkpoints.publish import export_checkpoint
from trainwright.checkpoints.resume_point import ResumeOptions, resume_point
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.medium

Write = Callable[..., Path]


def ranks(count: int) -> dict[str, bytes | None]:
    return {"rng_state.pth": None, **{f"rng_state_{rank}.pth": torch_file(b"r") for rank in range(count)}}


@pytest.mark.parametrize(
    ("nodes", "processes", "expected"),
    [
        ("2", "4", 8),
        ("1", "1", 1),
        ("2", "gpu", None),
        ("2", "auto", None),
        ("1:4", "2", None),
        ("", "4", None),
        ("2", "", None),
        ("0", "4", None),
        ("-1", "-4", None),
        ("²", "4", None),
        ("9" * 5000, "4", None),
        ("999999", "999999", None),
    ],
)
def test_the_ranks_of_a_job_are_derived_from_torchruns_variables_if_both_are_numbers(
    nodes: str, processes: str, expected: int | None
) -> None:
    variables = {"TRAINJOB_NAME": "job", RESUME_JOB_VARIABLE: "uid", "PET_NNODES": nodes, "PET_NPROC_PER_NODE": processes}
    assert Writer.from_environment(variables) == Writer("job", "uid", expected)


def test_a_missing_last_rank_is_named(output: Path, write_checkpoint: Write) -> None:
    record_writer(output, Writer("job", "uid", 4))
    write_checkpoint(5, **ranks(4))
    write_checkpoint(10, **ranks(3))
    write_checkpoint(15)
    assert [(each.world_size, each.incomplete) for each in find_checkpoints(output)] == [
        (4, ""),
        (4, "rng_state_3.pth is missing: 4 ranks trained"),
        (4, ""),  # one rank has trained after all
    ]


def test_checkpoints_of_an_earlier_job_with_other_ranks_stay_complete(output: Path, write_checkpoint: Write) -> None:
    record_writer(output, Writer("small", "1", 2))
    write_checkpoint(5, **ranks(2))
    write_checkpoint(7, **ranks(1))
    record_writer(output, Writer("large", "2", 8))
    write_checkpoint(10, **ranks(8))
    write_checkpoint(15, **ranks(2))
    assert [(each.step, each.world_size, bool(each.incomplete)) for each in find_checkpoints(output)] == [
        (5, 2, False),
        (7, 2, True),
        (10, 8, False),
        (15, 8, True),
    ]


def test_a_numbered_state_alone_is_never_all(output: Path, write_checkpoint: Write) -> None:
    write_checkpoint(5, **ranks(1))
    assert find_checkpoints(output)[0].incomplete == "rng_state_1.pth is missing"


def test_a_restarted_pod_changes_nothing_and_a_changed_size_is_another_job(output: Path, write_checkpoint: Write) -> None:
    record_writer(output, Writer("job", "uid", 4))
    before = (output / JOBS).stat().st_mtime_ns
    write_checkpoint(5, **ranks(4))
    record_writer(output, Writer("job", "uid", 4))
    assert (output / JOBS).stat().st_mtime_ns == before
    record_writer(output, Writer("job", "uid", 8))
    assert recorded_writers(output) == [Writer("job", "uid", 8)]
    assert trained_world_size(output, "checkpoint-5") is None


@pytest.mark.parametrize(
    "entries",
    [
        [{"name": "old", "uid": "1"}],
        [{"name": "job", "uid": "1", "world_size": 8}, {"name": "old", "uid": "2"}],
        [{"name": "job", "world_size": "8"}],
        [{"name": "job", "world_size": True}],
        [{"name": "job", "world_size": -8}],
        [{"name": "job", "world_size": 8, "earlier": ["checkpoint-5"]}],
        [None],
        "text",
    ],
)
def test_records_that_do_not_say_it_decide_nothing(output: Path, write_checkpoint: Write, entries: object) -> None:
    write_checkpoint(5, **ranks(2))
    (output / JOBS).write_text(json.dumps(entries))
    assert [(each.world_size, each.incomplete) for each in find_checkpoints(output)] == [(None, "")]


def test_a_record_that_leads_out_of_the_folder_decides_nothing(output: Path, write_checkpoint: Write, tmp_path: Path) -> None:
    write_checkpoint(5, **ranks(2))
    (tmp_path / "record").write_text(json.dumps([{"name": "job", "world_size": 8}]))
    (output / JOBS).symlink_to(tmp_path / "record")
    assert [(each.world_size, each.incomplete) for each in find_checkpoints(output)] == [(None, "")]


class TestResume:
    WRITER = Writer("job", "uid", 8)

    def test_the_leader_records_which_complete_checkpoints_were_there_before(self, output: Path, write_checkpoint: Write) -> None:
        write_checkpoint(5, **ranks(2))
        write_checkpoint(10, **ranks(2), **{"trainer_state.json": None})
        resume_point(output.parent, writer=self.WRITER)
        (entry,) = json.loads((output / JOBS).read_bytes())
        assert entry == {"name": "job", "uid": "uid", "world_size": 8, "earlier": ["checkpoint-5"]}
        write_checkpoint(10, **ranks(2))  # written again, by this job
        assert [each.incomplete for each in find_checkpoints(output)] == ["", "rng_state_2.pth is missing: 8 ranks trained"]

    def test_all_nodes_choose_the_same_whether_they_look_before_or_after_the_job_is_recorded(
        self, output: Path, write_checkpoint: Write
    ) -> None:
        record_writer(output, Writer("earlier", "1", 4), [])
        newest = write_checkpoint(5, **ranks(3))
        before = resume_point(output.parent, leader=False, writer=self.WRITER)
        assert resume_point(output.parent, writer=self.WRITER) == before == newest
        assert resume_point(output.parent, leader=False, writer=self.WRITER) == newest
        assert find_checkpoints(output)[0].incomplete == "rng_state_3.pth is missing: 4 ranks trained"

    def test_a_restored_export_of_a_job_with_other_ranks_stays_complete(
        self, output: Path, write_checkpoint: Write, tmp_path: Path
    ) -> None:
        write_checkpoint(5, **ranks(2))
        exported = export_checkpoint(output, str(StorageUri.from_path(tmp_path / "exports")), source="run").uri
        workspace = tmp_path / "other"
        for _ in range(2):
            restored = resume_point(workspace, writer=self.WRITER, options=ResumeOptions(resume=exported, job="uid"))
            assert restored == workspace / "output/checkpoint-5"
            assert [each.incomplete for each in find_checkpoints(workspace / "output")] == [""]

    def test_only_what_transformers_can_resume_from_is_chosen(self, output: Path, write_checkpoint: Write) -> None:
        newest = write_checkpoint(5)
        for step, marker in ((10, "checkpoint-10/.complete"), (20, "step-20/COMPLETE")):
            (output / marker).parent.mkdir()
            (output / marker).write_bytes(b"")
            (output / marker).with_name(f"weights-{step}").write_bytes(b"x")
        assert [each.step for each in find_checkpoints(output)] == [5, 10, 20]
        assert resume_point(output.parent) == newest
