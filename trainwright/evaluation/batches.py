"""Pads encoded rows to the tensors that a model takes, and marks the tokens that have a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwright.evaluation.encoding import Encoded

if TYPE_CHECKING:
    import torch

NO_LABEL = -100  # ignored by torch's cross entropy


def padded(batch: Sequence[Encoded]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return token ids, attention mask and labels, padded on the right, with shape (rows, longest row)."""
    import torch

    shape = (len(batch), max(len(row.tokens) for row in batch))
    tokens, attention = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, NO_LABEL)
    for index, row in enumerate(batch):
        length = len(row.tokens)
        tokens[index, :length] = torch.tensor(row.tokens)
        attention[index, :length] = 1
        predicted = row.predicted
        labels[index, predicted] = tokens[index, predicted]
    return tokens, attention, labels
