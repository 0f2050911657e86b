"""The loss of answers that are compared: DPO's of chosen and rejected ones, KTO's of those marked good or bad.

It is what TRL's trainers report as `eval_loss` by default, with the base model as the reference. The cross entropy of such answers
would say nothing: bad ones are not to be learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.evaluation.encoding import NO_LABEL, Encoded, encode_row, padded
from trainwright.evaluation.rows import LABEL, PREFERENCE, REJECTED, Row, RowSet

BETA = 0.1
"""TRL's default for both."""
ACCURACY = "preference_accuracy"
NAMES = {PREFERENCE: f"DPO, beta {BETA:g}", LABEL: f"KTO, beta {BETA:g}"}
"""What the loss is, by the kind of the rows."""


@dataclass(frozen=True)
class Compared:
    """Answers of which the log probabilities are needed, and how the loss follows from them.

    Of preferences, chosen and rejected ones alternate. For KTO, after the answers to be judged come those with the prompts of others,
    by which the divergence from the reference is estimated, in batches of `batch_size`.
    """

    kind: str
    answers: list[Encoded]
    labels: list[bool]
    batch_size: int

    @property
    def rows(self) -> int:
        return len(self.answers) // 2

    def figures(self, reference: Sequence[float], log_probabilities: Sequence[float]) -> dict[str, float]:
        """Return the loss from the log probabilities of all answers; for preferences also the share of pairs in which the chosen one
        has the better reward, of which those with the same reward are half.
        """
        ratios = [own - others for own, others in zip(log_probabilities, reference, strict=True)]
        if self.kind == PREFERENCE:
            margins = [BETA * (chosen - rejected) for chosen, rejected in zip(ratios[::2], ratios[1::2], strict=True)]
            accuracy = sum(1.0 if margin > 0 else 0.5 if margin == 0 else 0.0 for margin in margins) / len(margins)
            return {"loss": _mean([-_log_sigmoid(margin) for margin in margins]), ACCURACY: accuracy}
        judged, mismatched = ratios[: self.rows], ratios[self.rows :]
        losses = []
        for first in range(0, self.rows, self.batch_size):
            batch = slice(first, first + self.batch_size)
            divergence = max(_mean(mismatched[batch]), 0.0)
            for ratio, is_good in zip(judged[batch], self.labels[batch], strict=True):
                reward = BETA * (ratio - divergence)
                losses.append(1 - math.exp(_log_sigmoid(reward if is_good else -reward)))
        return {"loss": _mean(losses)}


def encode_compared(tokenizer: Any, rows: RowSet, *, limit: int | None, batch_size: int) -> Compared:
    """Tokenize the rows as TRL does. `limit` is the maximum number of tokens; longer answers are cut."""
    if rows.kind == PREFERENCE:
        pairs = [_pair(tokenizer, row, rows.layout) for row in rows.rows]
        return Compared(PREFERENCE, [answer.cut(limit) for pair in pairs for answer in pair], [], batch_size)
    full = [(encode_row(tokenizer, row, rows.layout), bool(row[LABEL])) for row in rows.rows]
    kept = [(answer, is_good) for answer, is_good in full if limit is None or answer.prompt_length < limit]
    mismatched = []
    for at, (answer, _) in enumerate(kept):
        first = at - at % batch_size
        other = kept[at - 1 if at > first else min(first + batch_size, len(kept)) - 1][0]
        tokens = answer.tokens[: answer.prompt_length] + other.tokens[other.prompt_length :]
        mismatched.append(Encoded(tokens, answer.prompt_length))
    answers = [answer.cut(limit) for answer in (*(answer for answer, _ in kept), *mismatched)]
    return Compared(rows.kind, answers, [is_good for _, is_good in kept], batch_size)


def log_probabilities(model: Any, answers: Sequence[Encoded], *, batch_size: int) -> list[float]:
    """Return the log probability of each answer after its prompt."""
    import torch

    found: list[float] = []
    model.eval()
    with torch.inference_mode():
        for first in range(0, len(answers), batch_size):
            tokens, attention, labels = padded(answers[first : first + batch_size])
            logits = model(input_ids=tokens.to(model.device), attention_mask=attention.to(model.device)).logits
            mask = (labels[:, 1:] != NO_LABEL).to(logits.device)
            targets = labels[:, 1:].to(logits.device)[mask]
            losses = torch.nn.functional.cross_entropy(logits[:, :-1][mask].float(), targets, reduction="none")
            sums = torch.zeros(len(tokens), device=logits.device).index_add_(0, mask.nonzero()[:, 0], -losses)
            found += sums.tolist()
    return found


def _pair(tokenizer: Any, row: Row, layout: str) -> tuple[Encoded, Encoded]:
    """Both answers begin at the same token: where the first of them differs from the prompt alone."""
    chosen = encode_row(tokenizer, row, layout)
    rejected = encode_row(tokenizer, {**row, "completion": row[REJECTED]}, layout)
    begins = min(chosen.prompt_length, rejected.prompt_length)
    return Encoded(chosen.tokens, begins), Encoded(rejected.tokens, begins)


def _log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value)) if value > 0 else value - math.log1p(math.exp(value))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
