"""The end of an answer and the template that marks answers, against the tokenizers and templates that they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.optional_packages import require_packages
from support.tiny_tokenizer import write_tokenizer

from trainwright.text import chat_templates
from trainwright.text.chat_templates import NoTrainingTemplate, TrlMissing, answer_template, resolved_end_token, turn_end

require_packages("transformers", "jinja2")
pytestmark = pytest.mark.medium

TURN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
SPECIAL = {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}


def tokenizer_with(folder: Path, template: str | None, **config: Any) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(write_tokenizer(folder, template=template, **{**SPECIAL, **config}))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (TURN, "<|im_end|>"),
        (TURN + "{{ eos_token }}", "<|im_end|>"),
        ("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}", "</s>"),
        ("{% for m in messages %}### {{ m.role }}: {{ m.content }}\n{% endfor %}", ""),
        ("{% for m in messages %}<|im_start|>{{ m.content | upper }}<|im_end|>{% endfor %}", ""),
        ("{% for m in messages %}<|im_start|>{{ m.content }}{{ m.content }}<|im_end|>{% endfor %}", ""),
        (
            "{% for m in messages %}<|im_start|>{% for part in m.content %}{{ part.text }}{% endfor %}<|im_end|>{% endfor %}",
            "<|im_end|>",
        ),
        ("{{ raise_exception('only one message') }}", ""),
        ("{% for %}", ""),
        (None, ""),
    ],
)
def test_turn_end_is_the_first_special_token_after_an_answer(tmp_path: Path, template: str | None, expected: str) -> None:
    assert turn_end(tokenizer_with(tmp_path, template)) == expected


def test_resolved_end_token_of_auto_is_for_conversations_alone(tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, TURN)
    assert resolved_end_token("auto", tokenizer, is_conversation=True) == "<|im_end|>"
    assert resolved_end_token("auto", tokenizer, is_conversation=False) == ""
    assert resolved_end_token("<|x|>", tokenizer, is_conversation=True) == "<|x|>"


def test_answer_template_is_the_one_that_trl_swaps_in(tmp_path: Path) -> None:
    require_packages("trl")
    from trl.chat_template_utils import get_training_chat_template

    tokenizer = tokenizer_with(tmp_path, TURN)
    known = chat_templates._trl_templates()
    assert known is not None
    assert len(known) > 20
    for template in known:
        tokenizer.chat_template = template
        assert answer_template(template) == get_training_chat_template(tokenizer)


def test_answer_template_with_marks_is_the_own_one() -> None:
    marked = "{% for m in messages %}{%- generation -%}{{ m.content }}{% endgeneration %}{% endfor %}"
    assert answer_template(marked) == marked


def test_answer_template_without_marks_is_refused_if_trl_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_templates, "_trl_templates", dict)
    with pytest.raises(NoTrainingTemplate, match=r"add the marks to the template, or use loss_on=all"):
        answer_template(TURN)
    monkeypatch.setattr(chat_templates, "_trl_templates", lambda: None)
    with pytest.raises(TrlMissing, match="trl is not installed"):
        answer_template(TURN)
