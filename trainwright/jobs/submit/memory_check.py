"""Compares, before anything is created, the memory that a training needs with that of the nodes, and says what would need less.

An estimate: by default a training that may not fit is warned of, and submitted all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.memory.node_memory import Room, room_of
from trainwright.jobs.memory.training_memory import TrainingMemory, advice, gib, training_memory
from trainwright.jobs.trainers.trl import TrlTrainer

WARN, FAIL, OFF = "warn", "fail", "off"
_TOLERANCE = 1.1
"""What an estimate may exceed the memory by before a training is said not to fit."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MemoryEstimate:
    """What a process needs, and has if that is known; `advice` says what would fit."""

    needs: TrainingMemory
    room: Room | None
    advice: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether it fits, as far as that is known."""
        return self.room is None or self.needs.total <= self.room.bytes * _TOLERANCE

    def __str__(self) -> str:
        if self.room is None:
            return f"the training needs {self.needs}; what its nodes have is not known"
        have = f"{self.room.whose}: {gib(self.room.bytes)}"
        if self.fits:
            return f"the training needs {self.needs}; {have}"
        ways = (
            f"; it would fit with {', or '.join(self.advice)}" if self.advice else "; no setting makes it fit, take other nodes"
        )
        return (
            f"the training needs {self.needs}, more than {have}{ways}. More nodes do not help: each process has the whole model"
        )


def estimate_memory(resolved: ResolvedRequest, nodes: Sequence[Obj]) -> MemoryEstimate | None:
    """Estimate the memory of a training; None for a program other than TRL's trainers, and without the shape of the model."""
    shape, trainer = resolved.request.data.model_shape, resolved.trainer
    if shape is None or not isinstance(trainer, TrlTrainer) or resolved.request.placement.memory_check == OFF:
        return None
    settings = trainer.settings.model_validate(resolved.request.settings)
    needs = training_memory(shape, settings)
    room = room_of(resolved.request, nodes, on_cpu=settings.cpu, num_nodes=resolved.nodes)
    found = MemoryEstimate(needs, room)
    if found.fits or room is None:
        return found
    return MemoryEstimate(needs, room, tuple(advice(shape, settings, room.bytes)))


def check_memory(resolved: ResolvedRequest, nodes: Sequence[Obj], name: str) -> str:
    """Return a warning if the training may not fit; empty otherwise. Raises Invalid instead if `memory_check` is fail."""
    found = estimate_memory(resolved, nodes)
    if found is None:
        return ""
    log.info("event=memory_estimated name=%s estimate=%r", name, str(found))
    if found.fits:
        return ""
    if resolved.request.placement.memory_check == FAIL:
        problem = Problem("settings", f"Invalid value: {found}; placement.memory_check=warn submits it all the same")
        raise Invalid.of("TrainJob", name, [problem], "trainer.kubeflow.org")
    return str(found)
