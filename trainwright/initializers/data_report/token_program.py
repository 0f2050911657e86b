"""The program that measures a dataset with a model's tokenizer, see `model_tokenizer`. Its arguments are a request and an answer."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from trainwright.initializers.data_report.figures import MAX_ANSWER, Measured, MeasureRequest, TokenFigures, shortened
from trainwright.initializers.data_report.token_counts import (
    Learned,
    RowRejected,
    RowUnfit,
    first_row,
    measure_tokens,
    row_text,
    time_limit,
)
from trainwright.initializers.trained_models import embedded_tokens, untrainable_reason
from trainwright.text.chat_templates import (
    NoTrainingTemplate,
    TrlMissing,
    answer_template,
    is_conversational,
    resolved_end_token,
)
from trainwright.text.text_input import read_json
from trainwright.tools.tokenizer_program import limit_tokenizer_process


def main() -> None:
    """Read the request, and write the answer."""
    asked, answer = sys.argv[1:]
    limit_tokenizer_process(MAX_ANSWER)
    found = measured(TypeAdapter(MeasureRequest).validate_json(Path(asked).read_bytes()))
    Path(answer).write_bytes(TypeAdapter(Measured).dump_json(found))


def measured(request: MeasureRequest) -> Measured:
    """Return the tokens of each file, or why the training would fail. Raises OSError."""
    from transformers import AutoTokenizer

    config = _settings(request.tokenizer / "config.json")
    if reason := untrainable_reason(config) or _why_unknown(config):  # TRL would fail on it
        return Measured(unfit=f"{request.model} cannot be trained: {reason}")
    if not (request.tokenizer / "tokenizer.json").is_file():
        return Measured(missing="the model has no tokenizer.json; tokens are counted with that file only")
    try:
        tokenizer = AutoTokenizer.from_pretrained(request.tokenizer, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of any library that reads these files
        return Measured(missing=f"the tokenizer cannot be read: {str(error)[:200]}")
    first = next(iter(request.rows))
    row = first_row(request.data / first)
    with time_limit():
        end = resolved_end_token(request.end_token, tokenizer, is_conversation=is_conversational(row))
    if end:
        if end not in tokenizer.get_vocab():
            return Measured(unfit=f"{end!r}, the end token of the training, is missing in the vocabulary of {request.model}")
        tokenizer.eos_token = end
    embedded = embedded_tokens(config)
    if problem := _why_unusable(tokenizer, row, request) or _why_not_embedded(tokenizer, embedded, request.model):
        return Measured(unfit=problem)
    ends = _end_tokens(tokenizer, request.tokenizer)
    try:
        learned, not_checked = _learned(tokenizer, Learned(ends, embedded=embedded), request.loss_on)
    except NoTrainingTemplate as error:
        return Measured(unfit=f"loss_on={request.loss_on}: {request.model}: {error}")
    try:
        found = {name: _tokens(request, name, tokenizer, learned) for name in request.rows}
        sample = shortened(row_text(tokenizer, row, learned))
    except (RowUnfit, RowRejected) as error:
        if isinstance(root_of(error), TimeoutError | MemoryError):  # limits of this process, which the training does not have
            return Measured(missing=str(error))
        return Measured(
            unfit=f"{error}; the training with {request.model} would fail there: change the row, the template or the model"
        )
    tokens = {name: figures for name, (figures, _) in found.items()}
    last = found[first][1].most_common(1)[0][0]
    return Measured(
        bool(tokenizer.chat_template),
        tokens,
        sample,
        unfit=_why_nothing_left(tokens[first], request),
        end=" or ".join(sorted(map(str, tokenizer.convert_ids_to_tokens(sorted(ends))))),
        last_special=str(tokenizer.convert_ids_to_tokens(last)) if last >= 0 else "",
        not_checked=not_checked,
    )


def _learned(tokenizer: Any, everything: Learned, loss_on: str) -> tuple[Learned, str]:
    """Return what the training learns, and what is not known of it. Raises NoTrainingTemplate."""
    if loss_on != "answers":  # all tokens are learned
        return everything, ""
    try:
        return replace(everything, answers=answer_template(tokenizer.chat_template)), ""
    except TrlMissing as error:  # its templates for training are not known without it
        return everything, str(error)


def root_of(error: BaseException) -> BaseException:
    """Return the first cause of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _tokens(request: MeasureRequest, name: str, tokenizer: Any, learned: Learned) -> tuple[TokenFigures | None, Counter[int]]:
    if not request.rows[name]:  # an empty split
        return None, Counter()
    return measure_tokens(request.data / name, request.rows[name], tokenizer, request.max_length, learned)


def _end_tokens(tokenizer: Any, model: Path) -> frozenset[int]:
    """Return the ids of the tokens at which the trained model stops to generate.

    Those of its generation config, else of its config, and the tokenizer's: transformers adds that before it trains.
    """
    found = [tokenizer.eos_token_id]
    for name in ("generation_config.json", "config.json"):
        if settings := _settings(model / name):  # the generation config counts before the config
            given = settings.get("eos_token_id")
            found += given if isinstance(given, list) else [given]
            break
    return frozenset(each for each in found if isinstance(each, int) and 0 <= each < len(tokenizer))


def _settings(path: Path) -> dict[str, Any]:
    """Return the settings in a file of the model; empty without them: the preparation of the model says what is wrong."""
    try:
        found = read_json(path.read_text("utf-8"))
    except (OSError, ValueError):  # a file that is missing names no token
        return {}
    return found if isinstance(found, dict) else {}


def _why_unknown(config: dict[str, Any]) -> str:
    """Say that a model needs code from its repository, which no training runs; empty if transformers has that code."""
    from transformers import CONFIG_MAPPING, __version__

    kind = str(config.get("model_type"))
    if not config.get("auto_map") or kind in CONFIG_MAPPING:  # transformers has the model itself, without code of the repository
        return ""
    return (
        f"it needs the code in its repository (auto_map in config.json), which is not run: transformers {__version__} does not know "
        f"the model_type {kind[:40]!r}; use a model of a type that it knows"
    )


def _why_not_embedded(tokenizer: Any, embedded: int, model: str) -> str:
    """Say that tokens which the training adds to rows have no embedding."""
    for name in ("eos_token", "pad_token"):
        number = getattr(tokenizer, f"{name}_id")
        if embedded and number is not None and number >= embedded:
            return (
                f"the {name} {getattr(tokenizer, name)!r} of {model} has the id {number}, but the model has embeddings for {embedded} "
                "tokens only: resize them with resize_token_embeddings of transformers, or use another model"
            )
    return ""


def _why_unusable(tokenizer: Any, row: dict[str, Any], request: MeasureRequest) -> str:
    model = request.model
    if request.loss_on and "messages" not in row:
        return f"loss_on={request.loss_on} is for rows with messages, and these have {_described(row)}: leave it out"
    if is_conversational(row) and not tokenizer.chat_template:
        return (
            f"{model} has no chat template, but the rows are messages: use a model that was tuned for chats, or rows with texts"
        )
    if not is_conversational(row) and not tokenizer.eos_token:
        return f"the tokenizer of {model} names no eos_token, which ends every row: use another model"
    return ""


def _described(row: dict[str, Any]) -> str:
    if "completion" in row:
        return "prompt and completion, of which the completion alone is learned anyway"
    return "texts, of which all is learned" if "text" in row else "answers that are compared"


def _why_nothing_left(tokens: TokenFigures | None, request: MeasureRequest) -> str:
    if tokens is None or tokens.emptied < tokens.counted:  # at least one row is left
        return ""
    return (
        f"none of {tokens.counted} rows has anything left to learn from (num_samples=0): with the tokenizer of {request.model}, the "
        f"prompts alone fill max_length={request.max_length} (half of the rows have {tokens.p50} tokens and more); raise max_length, "
        "or shorten the prompts"
    )


if __name__ == "__main__":
    main()
