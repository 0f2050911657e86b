"""What accelerate writes for FSDP into a checkpoint of transformers' Trainer.

Sharded: the DCP folders `pytorch_model_fsdp_K` and `optimizer_K`. Full: `pytorch_model_fsdp.bin` and `optimizer.bin` by the first
rank. Local, or without DCP: `..._rankR.bin` by every rank. K numbers several models; 0 is left out of the names of full states.
"""

from __future__ import annotations

import re
from pathlib import Path

from trainwright.checkpoints.formats.dcp import dcp_error, dcp_ranks
from trainwright.checkpoints.formats.torch_file import torch_file_error

_FOLDER = re.compile(r"(pytorch_model_fsdp|optimizer)_([0-9]+)")
_FILE = re.compile(r"(pytorch_model_fsdp|optimizer)(?:_([0-9]+))?(?:_rank([0-9]+))?\.bin")
MODEL, OPTIMIZER = "pytorch_model_fsdp", "optimizer"


class FsdpFiles:
    """The FSDP states in a checkpoint folder. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = sorted(folder.iterdir())
        self.folders = [path for path in found if _FOLDER.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]
        self.files = [path for path in found if _FILE.fullmatch(path.name)]

    def has(self, kind: str) -> bool:
        """Whether there is a state of the MODEL or the OPTIMIZER."""
        return bool(self._numbers(kind))

    @property
    def has_full_model(self) -> bool:
        """Whether the first rank has gathered the model; the Trainer then writes it as safetensors too."""
        return any((match := _FILE.fullmatch(path.name)) and match[1] == MODEL and match[3] is None for path in self.files)

    @property
    def ranks(self) -> int:
        """The least number of ranks that can have written these files. Raises UnsafeFile, OSError."""
        files = [int(match[3]) + 1 for path in self.files if (match := _FILE.fullmatch(path.name)) and match[3]]
        return max([*files, *(dcp_ranks(path, self.folder) for path in self.folders)], default=0)

    def error(self, world_size: int | None) -> str | None:
        """Return which file is missing or incomplete, or None. Raises UnsafeFile, OSError."""
        for path in self.folders:
            if error := dcp_error(path, self.folder):
                return error
        for path in self.files:
            if error := torch_file_error(path, self.folder):
                return error
        return self._missing_rank(world_size) or self._missing_optimizer()

    def _missing_rank(self, world_size: int | None) -> str | None:
        ranks: dict[str, set[int]] = {}
        for path in self.files:
            if (match := _FILE.fullmatch(path.name)) and match[3] is not None:
                ranks.setdefault(path.name[: match.start(3)], set()).add(int(match[3]))
        expected = max([world_size or 0, *(max(found) + 1 for found in ranks.values())])
        for stem, found in sorted(ranks.items()):
            missing = next((rank for rank in range(expected) if rank not in found), None)
            if missing is not None:
                return f"{stem}{missing}.bin is missing"
        return None

    def _missing_optimizer(self) -> str | None:
        """accelerate writes the state of every model with that of its optimizer."""
        models, optimizers = self._numbers(MODEL), self._numbers(OPTIMIZER)
        for kind, lost in ((OPTIMIZER, models - optimizers), (MODEL, optimizers - models)):
            if lost:
                return f"{self._name(kind, min(lost))} is missing"
        return None

    def _name(self, kind: str, number: int) -> str:
        """Return the name of a state as this checkpoint's kind has it: a folder, or a file of the first rank."""
        return f"{kind}_{number}" if self.folders else f"{kind}_{number}.bin" if number else f"{kind}.bin"

    def _numbers(self, kind: str) -> set[int]:
        matches = [_FOLDER.fullmatch(path.name) for path in self.folders] + [_FILE.fullmatch(path.name) for path in self.files]
        return {int(match[2] or 0) for match in matches if match and match[1] == kind}
