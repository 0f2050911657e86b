"""Which logs of a TrainJob to show, and how many bytes of them; and what is shown, a line at a time.

Imports nothing heavy: the classes are types of settings, which a command line and a DAG need at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trainwright.api import names
from trainwright.api.objects import Obj

TICK_BYTES = 64 * 1024
TOTAL_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class LogSelector:
    """Which lines: of a step's pods with this rank (None: all ranks), from the time `since` on, the last `tail` lines of each.

    Without a step, those of the training: of the nodes, or of the launcher of an MPI job, which prints what all its ranks print.
    """

    step: str = ""
    rank: int | None = 0
    since: str = ""
    tail: int | None = None
    is_exact: bool = False
    """Lines as they are, see `ContainerLog`."""

    @classmethod
    def parse(cls, text: str) -> LogSelector | None:
        """Parse `RANK`, `all`, `STEP:RANK` or `STEP:all`; None for `none`. Raises ValueError."""
        if text == "none":
            return None
        step, _, rank = text.rpartition(":")
        if rank != "all" and not (rank.isascii() and rank.isdecimal() and len(rank) < 7):
            raise ValueError(f"logs: {text!r} is not a rank, all, STEP:RANK, STEP:all or none")
        return cls(step, None if rank == "all" else int(rank))

    def __str__(self) -> str:
        rank = "all" if self.rank is None else str(self.rank)
        return f"{self.step}:{rank}" if self.step else rank

    def of(self, pods: list[Obj]) -> list[Obj]:
        """Return the pods of the selected step and rank."""
        from trainwright.jobs.state.pods import index_of, step_of

        steps = self.steps(pods)
        return [pod for pod in pods if step_of(pod) in steps and (self.rank is None or index_of(pod) == self.rank)]

    def steps(self, pods: list[Obj]) -> tuple[str, ...]:
        """Return the selected steps, given the pods of the job."""
        if self.step:
            return (self.step,)
        from trainwright.materialize.policies.mpi import LAUNCHER

        if not any(volume["name"] == names.SSH_VOLUME for pod in pods for volume in pod["spec"].get("volumes") or []):
            return (names.NODE,)
        return (LAUNCHER, names.NODE) if self.rank is None else (LAUNCHER,)


@dataclass(frozen=True)
class Budget:
    """Maximum bytes to show in each tick of half a second, and in total. What exceeds a tick is shown later, or at the end."""

    tick: int | None = None
    total: int | None = None
    tail_lines: int = 20
    """Number of last lines shown of a truncated log."""
    pending_lines: int = 1000
    """Lines that are read ahead; readers block beyond them."""


@dataclass(frozen=True)
class LogStreamOptions:
    """Which logs to show, and how many bytes of them."""

    selector: LogSelector = LogSelector()
    budget: Budget = Budget(TICK_BYTES, TOTAL_BYTES)

    @classmethod
    def parse(cls, text: str, total: int = TOTAL_BYTES) -> LogStreamOptions | None:
        """Parse `RANK`, `all`, `STEP:RANK` or `STEP:all`; None for `none`, or a total of 0 bytes. Raises ValueError."""
        selector = LogSelector.parse(text)
        return cls(selector, Budget(TICK_BYTES, total)) if selector is not None and total > 0 else None


class LogLine(NamedTuple):
    """`source` is `STEP-JOB-RANK`, `stamp` the line's timestamp; both are empty for messages of the client itself."""

    source: str
    text: str
    stamp: str = ""
