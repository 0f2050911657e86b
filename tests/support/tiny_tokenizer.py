"""A tokenizer with a token for each byte, and the files of a model beside it, without weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BOS, EOS, CHAT = "<s>", "</s>", "<|im_end|>"
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}\n{% endif %}{% for message in messages %}\n"
    "    <{{ message.role }}>{{ message.content | trim }}{% for call in message.tool_calls %}{{ call.function | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% if not thinking %}<think>{% endif %}{% endif %}"
)


def write_tokenizer(folder: Path, *, around: bool = True, template: str | None = TEMPLATE, **config: Any) -> Path:
    """Write the files of a tokenizer. `around`: whether it puts BOS before a text. `config` goes to tokenizer_config.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    vocabulary = {token: number for number, token in enumerate([BOS, EOS, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    merged = {"Ġt": len(vocabulary), "on": len(vocabulary) + 1}
    tokenizer = Tokenizer(models.BPE({**vocabulary, **merged}, [("Ġ", "t"), ("o", "n")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BOS, EOS])
    if around:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    return folder
