"""The small language model that the quickstart fine-tunes, built on first use.

It is pretrained only on prose about the town, so it can write about ships and captains but cannot answer questions. This makes
the effect of fine-tuning visible. It needs no download and takes 15 to 30 seconds on two cores.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.initializers.layouts import alpaca_prompt
from trainwright.quickstart.world import CORPUS_FILE, INSTRUCTIONS_FILE

if TYPE_CHECKING:
    import torch

DATA = Path(__file__).parent / "data"
SEED = 11
BOS, EOS, PAD = "<s>", "</s>", "<pad>"
LAYOUT = 2  # incremented when the same inputs produce a different folder

OnStep = Callable[[int, int], None]
"""Is told of each step of a pretraining: how many are done, of how many."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Preset:
    """Sizes of a model and of its pretraining."""

    vocabulary: int  # maximum number of tokens
    hidden: int  # width of the residual stream
    intermediate: int  # width of the feed-forward layers
    layers: int
    heads: int
    window: int  # tokens per training sequence
    batch: int  # sequences per step
    steps: int
    learning_rate: float  # peak


PRESETS = {
    "quickstart": Preset(1024, 192, 512, 2, 6, 128, 4, 420, 3e-3),
    "tiny": Preset(512, 64, 128, 2, 2, 64, 8, 10, 3e-3),
}
POSITIONS = 512  # maximum sequence length, in tokens
PARAGRAPHS_PER_PAGE = 4  # so that the model learns to begin a sentence on a new line
WARM_UP = 0.1  # fraction of the steps with a rising learning rate
WEIGHT_DECAY = 0.01


def ensure_base_model(
    models: Path, *, seed: int = SEED, steps: int | None = None, preset: str = "quickstart", on_step: OnStep | None = None
) -> Path:
    """The folder of the base model, which is built if it does not exist.

    models: parent folder of the models. seed, steps, preset, on_step: as for build_base_model.
    Returns `models/harbour-<preset>-<fingerprint>`, so changing the text or a size results in a new folder.
    """
    out = model_folder(models, seed=seed, steps=steps, preset=preset)
    if not out.is_dir():
        try:
            build_base_model(out, seed=seed, steps=steps, preset=preset, on_step=on_step)
        except FileExistsError:
            logger.info("%s was built concurrently by another process", out)
    return out


def model_folder(models: Path, *, seed: int = SEED, steps: int | None = None, preset: str = "quickstart") -> Path:
    """The folder in which `ensure_base_model` puts the model; builds nothing."""
    return models / f"harbour-{preset}-{fingerprint(seed=seed, steps=steps, preset=preset)}"


def fingerprint(*, seed: int = SEED, steps: int | None = None, preset: str = "quickstart") -> str:
    """A digest of all inputs of the model (both texts, the sizes, the steps, the seed), as twelve hexadecimal digits."""
    training = {"warm_up": WARM_UP, "weight_decay": WEIGHT_DECAY, "page": PARAGRAPHS_PER_PAGE, "positions": POSITIONS}
    recipe = {"layout": LAYOUT, "seed": seed, **training, **asdict(_sizes(preset, steps))}
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode())
    for name in (CORPUS_FILE, INSTRUCTIONS_FILE):
        digest.update(hashlib.sha256((DATA / name).read_bytes()).digest())
    return digest.hexdigest()[:12]


def build_base_model(
    out: Path, *, seed: int = SEED, steps: int | None = None, preset: str = "quickstart", on_step: OnStep | None = None
) -> float:
    """Train a tokenizer and a small Llama on the bundled text and write them as a Hugging Face model folder.

    out: the folder to create, atomically. seed: seed of weights and batches. steps: pretraining steps; defaults to the
    preset's. preset: "quickstart" (about 3.6 million parameters) or "tiny" (for tests). on_step: is told of each step.
    Returns the training loss of the last step, in nats per token.
    Raises FileExistsError if `out` exists, ValueError for an unknown preset.
    """
    sizes = _sizes(preset, steps)
    if out.exists():
        raise FileExistsError(f"{out} exists already")
    out.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        tokenizer = _train_tokenizer(sizes)
        model, loss = _pretrain(tokenizer, sizes, seed, on_step)
        tokenizer.save_pretrained(draft)
        model.save_pretrained(draft)
        draft.chmod(0o755)  # mkdtemp and safetensors restrict them to their owner
        for path in draft.iterdir():
            path.chmod(0o644)
        try:
            os.rename(draft, out)
        except OSError as error:
            if out.exists():
                raise FileExistsError(f"{out} exists already") from error
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    logger.info("built %s: %d parameters, loss %.2f, %.0f s", out, model.num_parameters(), loss, time.monotonic() - begun)
    return loss


def _sizes(preset: str, steps: int | None) -> Preset:
    if preset not in PRESETS:
        raise ValueError(f"preset {preset!r} is not one of {', '.join(PRESETS)}")
    sizes = asdict(PRESETS[preset])
    return Preset(**(sizes if steps is None else sizes | {"steps": steps}))


def _train_tokenizer(sizes: Preset) -> Any:
    """A byte-level BPE tokenizer that prepends BOS to every text. Trained on both files, and on prompts as the
    training has them, so that a row needs 34 tokens instead of 48."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=sizes.vocabulary,
        special_tokens=[BOS, EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def _texts() -> Iterator[str]:
    yield from (DATA / CORPUS_FILE).read_text(encoding="utf-8").splitlines()
    for line in (DATA / INSTRUCTIONS_FILE).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield from (alpaca_prompt(row["instruction"], row["input"]), row["output"])


def _pretrain(tokenizer: Any, sizes: Preset, seed: int, on_step: OnStep | None) -> tuple[Any, float]:
    """Next-token training on random windows of the corpus. Returns the model and the loss of its last step."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=sizes.hidden,
        intermediate_size=sizes.intermediate,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=sizes.learning_rate, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share_of_peak(step, sizes.steps))
        stream = _token_stream(tokenizer)
        loss = float("nan")
        for step in range(sizes.steps):
            starts = torch.randint(len(stream) - sizes.window, (sizes.batch,)).tolist()
            windows = torch.stack([stream[start : start + sizes.window] for start in starts])
            result = model(input_ids=windows, labels=windows).loss
            result.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            loss = result.item()
            if step % 20 == 0:
                logger.info("step %d of %d: loss %.2f", step, sizes.steps, loss)
            if on_step is not None:
                on_step(step + 1, sizes.steps)
    return model.eval(), loss


def _share_of_peak(step: int, steps: int) -> float:
    """The learning rate of a step relative to its peak: linear warm-up, then cosine decay."""
    rising = max(1, round(WARM_UP * steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def _token_stream(tokenizer: Any) -> torch.Tensor:
    """The corpus as a tensor of token ids of shape (tokens,): pages of several paragraphs, each between BOS and EOS."""
    import torch

    paragraphs = (DATA / CORPUS_FILE).read_text(encoding="utf-8").splitlines()
    tokens: list[int] = []
    for first in range(0, len(paragraphs), PARAGRAPHS_PER_PAGE):
        page = "\n".join(paragraphs[first : first + PARAGRAPHS_PER_PAGE])
        tokens += [*tokenizer(page)["input_ids"], tokenizer.eos_token_id]
    return torch.tensor(tokens)
