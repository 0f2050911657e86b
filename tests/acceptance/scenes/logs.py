"""Logs: much, long lines, several ranks, of an earlier run of the container."""

from __future__ import annotations

from acceptance.checks import ends, job_is, says, within
from acceptance.scene import Check, Scene
from acceptance.stage import TORCH, Stage, submit
from acceptance.told import Told

RANKS = "import os; [print('line', n, 'of', os.environ['JOB_COMPLETION_INDEX']) for n in range(50)]"
MEBIBYTE = 2**20


def at_most(count: int) -> Check:
    """What the person sees has at most so many bytes."""

    def check(_stage: Stage, told: Told) -> None:
        assert len(told.out) <= count, f"{len(told.out)} bytes of log"

    return check


def _reads_afterwards(stage: Stage) -> Told:
    told = submit(*TORCH, "--num-nodes", "2", "--command", f'python3 -uc "{RANKS}"')(stage)
    assert told.code == 0, told
    name = stage.job()["metadata"]["name"]
    last = stage.trainwright("logs", name, "--rank", "1", "--tail", "2")
    assert last.out.split() == ["line", "48", "of", "1", "line", "49", "of", "1"], last
    return stage.trainwright("logs", name, "--all", "--tail", "1")


SCENES = [
    Scene(
        "of one rank and of all", _reads_afterwards, (ends(0), says(r"^\[node-0-0\] line 49 of 0", r"^\[node-0-1\] line 49 of 1"))
    ),
    Scene(
        "one line of 5 MB",
        submit(*TORCH, "--command", "python3 -uc \"print('x' * 5_000_000); print('behind the long line')\""),
        (ends(0), says("behind the long line"), job_is("Complete"), at_most(6 * MEBIBYTE)),
    ),
    Scene(
        "200 MB",
        submit(
            *TORCH,
            "--command",
            "python3 -c \"[print(f'line {n}', 'y' * 190) for n in range(1_000_000)]; print('the very last line')\"",
            seconds=1200,
        ),
        (ends(0), says("the very last line"), job_is("Complete"), at_most(18 * MEBIBYTE), within(900)),
        marks=("long",),
    ),
    Scene(
        "30 MB and a limit",
        submit(
            *TORCH,
            "--log-bytes",
            "100000",
            "--command",
            "python3 -c \"[print(f'line {n}', 'y' * 190) for n in range(150_000)]; print('the very last line')\"",
            seconds=600,
        ),
        (ends(0), says("the very last line"), at_most(300_000), within(300)),
    ),
]
