"""A request together with its runtime, and what both decide: made once, by `resolve`, for submission, preview and dry run."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainwright.api.objects import Obj
from trainwright.jobs.code.code_package import PackedCode
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.run_folder import Kind
from trainwright.jobs.trainers.builtin_trainers import BuiltinTrainer, Program


@dataclass(frozen=True)
class ResolvedRequest:
    """`runtime` is the definition that the request names, `trainer` the builtin trainer with its `program`, `code` the packed code.

    `inputs` are the digests of the prepared inputs that are mounted from the workspace, see `mounted_inputs`.
    """

    request: TrainRequest
    runtime: Obj
    trainer: BuiltinTrainer | None = None
    program: Program | None = None
    inputs: dict[Kind, str] = field(default_factory=dict)
    code: PackedCode | None = None
    warnings: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """The number of training nodes: the request's, else the runtime's."""
        manifest = self.request.manifest
        given = manifest["spec"].get("trainer") or {} if manifest is not None else {}
        policy = self.runtime["spec"].get("mlPolicy") or {}
        return self.request.num_nodes or given.get("numNodes") or int(policy.get("numNodes") or 1)
