"""The size of a language model, as far as the memory of its training depends on it: read from its config.json and weights.

The step that prepares a model returns it as a small object, which the training step is given; only that step sees the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

_NESTED = ("text_config", "language_config", "llm_config", "decoder")
"""Where models of several modalities have the configuration of their language model."""
_NAMES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "vocabulary": ("vocab_size",),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "intermediate": ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
}
_EXPERTS, _ACTIVE = ("num_local_experts", "num_experts", "n_routed_experts"), ("num_experts_per_tok", "num_experts_per_token")
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx")


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Sizes of a decoder. `queries` and `key_values` are the widths of all heads together, of queries and of keys (or values).

    Raises ValueError for a size that no decoder has.
    """

    parameters: int
    hidden: int
    layers: int
    vocabulary: int
    intermediate: int
    heads: int
    queries: int
    key_values: int
    embeddings: int
    """Parameters of the token embeddings and of the output layer, which no quantization makes smaller."""
    experts: int = 1
    active_experts: int = 1
    most_tokens: int = 0
    """Tokens of a row: what the model can read, or the longest row of the data; 0: not known."""

    def __post_init__(self) -> None:
        for name, size in self.as_json().items():
            if not isinstance(size, int) or isinstance(size, bool) or size < (0 if name == "most_tokens" else 1):
                raise ValueError(f"{name}: expected a positive whole number")

    @classmethod
    def of(cls, sizes: Mapping[str, Any]) -> Self:
        """Return the shape with these sizes by name, as `as_json` gives them. Raises ValueError."""
        if not isinstance(sizes, Mapping):
            raise ValueError("expected an object")
        known = {one.name for one in fields(cls)}
        if wrong := [str(name)[:80] for name in sizes if name not in known]:
            raise ValueError(f"{wrong[0]}: unknown; expected the sizes that the step returns which prepares the model")
        try:
            return cls(**sizes)
        except TypeError:
            raise ValueError("expected all sizes that the step returns which prepares the model") from None

    def as_json(self) -> dict[str, int]:
        """Return the sizes by name."""
        return asdict(self)

    @classmethod
    def of_config(cls, config: Mapping[str, Any], parameters: int = 0) -> Self | None:
        """Return the shape that a config.json describes, or None for a model without the sizes of a decoder.

        `parameters` are those that its weights have; 0: they are computed from the sizes.
        """
        whole = config
        config = next((config[name] for name in _NESTED if isinstance(config.get(name), Mapping)), config)
        found = {field: _number(config, names) for field, names in _NAMES.items()}
        if not (found["hidden"] and found["layers"] and found["vocabulary"]):
            return None
        hidden, heads = found["hidden"], found["heads"] or 1
        head = _number(config, ("head_dim",)) or max(hidden // heads, 1)
        key_value_heads = _number(config, ("num_key_value_heads",)) or heads
        is_tied = config.get("tie_word_embeddings", whole.get("tie_word_embeddings", True)) is not False
        experts = _number(config, _EXPERTS) or 1
        sizes: dict[str, int] = {
            "hidden": hidden,
            "layers": found["layers"],
            "vocabulary": found["vocabulary"],
            "intermediate": _number(config, ("moe_intermediate_size",)) or found["intermediate"] or 4 * hidden,
            "heads": heads,
            "queries": heads * head,
            "key_values": key_value_heads * head,
            "experts": experts,
            "active_experts": min(_number(config, _ACTIVE) or 1, experts),
            "most_tokens": _number(config, _POSITIONS),
            "embeddings": found["vocabulary"] * hidden * (1 if is_tied else 2),
        }
        try:
            shape = cls(parameters=max(parameters, 1), **sizes)
        except ValueError:  # a size that no decoder has
            return None
        return shape if parameters else replace(shape, parameters=shape.embeddings + shape.linear)

    @property
    def linear(self) -> int:
        """Parameters of the linear layers without the output layer, computed from the sizes. Gated feed-forward layers are assumed."""
        attention = self.hidden * (2 * self.queries + 2 * self.key_values)
        return self.layers * (attention + 3 * self.hidden * self.intermediate * self.experts)

    def adapter(self, rank: int) -> int:
        """Parameters of a LoRA adapter of this rank on all linear layers but the output layer (Hu et al. 2021, section 4.1)."""
        attention = 2 * (self.hidden + self.queries) + 2 * (self.hidden + self.key_values)
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate) * self.experts)


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """Return the first of these settings that is a positive number; 0 for none."""
    values = (config.get(name) for name in names)
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0), 0)
