"""What a chat template says of training: which token ends an answer, and which of the tokens are the assistant's.

Both are found by rendering, not by names of tokens. It takes a tokenizer of transformers, and imports nothing of it.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

AUTO = "auto"
"""The end token of a training that the chat template names."""
_WORD = "trainwright"
_EXCHANGES = tuple(
    ({"role": "user", "content": wrapped("?")}, {"role": "assistant", "content": wrapped(_WORD)})
    for wrapped in (str, lambda text: [{"type": "text", "text": text}])
)
"""Templates of models that see images, too, take the parts of messages alone."""
_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")
_TRAINING = "_training"


class NoTrainingTemplate(ValueError):
    """No chat template marks the assistant's answers; the message says what to do."""


class TrlMissing(Exception):
    """TRL is not installed, so that its templates are not known."""


def is_conversational(row: Mapping[str, Any]) -> bool:
    """Whether a prepared row has lists of messages."""
    return any(isinstance(row.get(column), list) for column in ("prompt", "messages", "chosen"))


def turn_end(tokenizer: Any) -> str:
    """Return the special token with which the chat template ends an answer; empty without a template or such a token.

    It is the first one after the answer: templates such as Phi-3's add another one at the end of a conversation.
    """
    if not tokenizer.chat_template:
        return ""
    texts = (_rendered(tokenizer, exchange) for exchange in _EXCHANGES)
    after = next((text.partition(_WORD)[2] for text in texts if text.count(_WORD) == 1), "")  # else it changes answers
    special = special_ids(tokenizer)
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    found = next((number for number in ids if number in special), None)
    return "" if found is None else str(tokenizer.convert_ids_to_tokens(found))


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Return the ids of a tokenizer's special tokens: those that it has names for, and those that were added as such."""
    added = (number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
    return frozenset((*tokenizer.all_special_ids, *added))


def _rendered(tokenizer: Any, exchange: Sequence[dict[str, Any]]) -> str:
    try:
        return str(tokenizer.apply_chat_template(list(exchange), tokenize=False))
    except Exception:  # of a template, which is a program: it wants other messages
        return ""


def resolved_end_token(asked: str, tokenizer: Any, *, is_conversation: bool) -> str:
    """Return the end token that a training is asked for, where `auto` is that of the template if the rows are conversations.

    Empty: that of the tokenizer.
    """
    if asked != AUTO:
        return asked
    return turn_end(tokenizer) if is_conversation else ""


def answer_template(chat_template: str) -> str:
    """Return the template with which TRL finds the assistant's answers: the own one if it marks them, else TRL's in place of it.

    Raises NoTrainingTemplate, TrlMissing if TRL might have one.
    """
    if _MARK.search(chat_template):
        return chat_template
    known = _trl_templates()
    if known is None:
        raise TrlMissing("whether the chat template marks answers is not known: trl is not installed here")
    if chat_template in known:
        return known[chat_template]
    raise NoTrainingTemplate(
        "the chat template does not mark the assistant's answers with {% generation %}, and TRL has none in place of it: add the "
        "marks to the template, or use loss_on=all"
    )


def learned_answers(
    tokenizer: Any, messages: Sequence[dict[str, Any]], template: str, **options: Any
) -> tuple[list[int], list[bool]]:
    """Return the token ids of a conversation, and which of them are the assistant's. `template` is that of `answer_template`."""
    rendered = tokenizer.apply_chat_template(
        list(messages),
        chat_template=template,
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
        **options,
    )
    return list(rendered["input_ids"]), [bool(each) for each in rendered["assistant_masks"]]


@cache
def _trl_templates() -> dict[str, str] | None:
    """Return TRL's templates with marks by those that they replace; None without TRL, whose other dependencies are not needed."""
    spec = importlib.util.find_spec("trl")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "chat_templates"
    found = {}
    for marked in sorted(folder.glob(f"*{_TRAINING}.jinja")):
        plain = marked.with_name(marked.name.replace(_TRAINING, ""))
        if plain.is_file():
            found[plain.read_text("utf-8")] = marked.read_text("utf-8")
    return found
