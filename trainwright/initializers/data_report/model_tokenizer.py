"""What the tokenizer of a model makes of a dataset: its files are fetched without the weights, and read by transformers.

Chat templates are programs of strangers. transformers runs them in jinja2's sandbox; here also in a separate process, without
credentials and network access of Hugging Face's libraries, with a limit of memory and of time.
"""

from __future__ import annotations

import importlib.util
import logging
import signal
import sys
import tempfile
from collections import deque
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from trainwright.initializers.columns import renders_messages
from trainwright.initializers.data_report.figures import MAX_ANSWER, Measured, MeasureRequest
from trainwright.initializers.data_report.token_counts import ROW_SECONDS
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import FileFilter
from trainwright.initializers.prepare import parse_source
from trainwright.initializers.report_options import ReportOptions
from trainwright.initializers.source import fetch, resolve_revision
from trainwright.programs import run_in_group
from trainwright.storage.errors import BadUri, StorageError
from trainwright.storage.plain_files import ProgressCallback, no_progress
from trainwright.text.foreign_texts import without_credentials
from trainwright.text.text_input import read_json
from trainwright.tools.tokenizer_program import tokenizer_environment

MAX_SECONDS = 900.0
"""Counting the tokens of two splits takes a minute or two."""
_TOKENIZER_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_TEMPLATE_FILES = ("config.json", _TOKENIZER_CONFIG, _TEMPLATE)
_FILES = (
    *_TEMPLATE_FILES,
    "tokenizer.json",
    "generation_config.json",
    "special_tokens_map.json",
    "additional_chat_templates/*.jinja",
)
_MAX_BYTES = 512 * 1024 * 1024
"""Of all these files. Tokenizers with the largest vocabularies have a tenth of it."""
_PROGRAM = "trainwright.initializers.data_report.token_program"


log = logging.getLogger(__name__)


class TokenizerMissing(Exception):
    """The tokenizer cannot be had here; the message says why. The training may have it all the same."""


def learns_messages(options: ReportOptions, trainer: str) -> bool:
    """Whether questions and answers should become messages: the model has a chat template, and the builtin trainer renders it.

    An empty trainer is TRL's, unless a report that only warns says that another program trains. False if it cannot be known.
    Raises BadUri.
    """
    is_rendered = renders_messages(trainer) if trainer else options.report_mode != "warn"
    if not options.model_uri or options.report_mode == "off" or not is_rendered:  # without a tokenizer, the template is not known
        return False
    with tempfile.TemporaryDirectory(prefix="trainwright-template-") as folder:
        try:
            _fetch(options.model_uri, Path(folder), _TEMPLATE_FILES)
        except TokenizerMissing as error:  # messages need a template that is known
            log.warning("event=chat_template_unknown model=%s reason=%r", shown(options.model_uri), str(error))
            return False
        return _has_chat_template(Path(folder))


def _has_chat_template(model: Path) -> bool:
    """Whether the files of a tokenizer have a template for all chats; those with other names need to be asked for."""
    if (model / _TEMPLATE).is_file():  # newer versions save it as a file
        return True
    try:
        found = read_json((model / _TOKENIZER_CONFIG).read_text("utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):  # no such file, or the report says what is wrong with it
        return False
    if isinstance(found, list):  # several templates by name
        return any(isinstance(each, dict) and each.get("name") == "default" for each in found)
    return isinstance(found, str) and bool(found)


def measure_with_model(
    data: Path, rows: dict[str, int], model_uri: str, max_length: int, end_token: str = "", loss_on: str = ""
) -> Measured:
    """Measure the files of a prepared dataset with the tokenizer of a model.

    Args:
        data: The folder of the dataset.
        rows: The rows of its files, by their names; the first file has one.
        model_uri: The model; none of its weights are fetched.
        max_length: Tokens of a row in the training; 0: not known.
        end_token: Ends every row in the training; empty: that of the tokenizer.
        loss_on: `answers` if only those of messages are learned.

    Raises TokenizerMissing (no access, offline, no fast tokenizer, packages are missing, beyond the limits), BadUri, OSError.
    """
    for package in ("transformers", "jinja2"):
        if importlib.util.find_spec(package) is None:
            raise TokenizerMissing(f"{package} is not installed: install trainwright[launcher]")
    with tempfile.TemporaryDirectory(prefix="trainwright-tokenizer-") as folder:
        model = Path(folder) / "model"
        model.mkdir()
        _fetch(model_uri, model, _FILES)
        found = _run(MeasureRequest(model, shown(model_uri), data.absolute(), rows, max_length, end_token, loss_on), Path(folder))
    if found.missing:
        raise TokenizerMissing(without_credentials(found.missing))
    return found


def shown(model_uri: str) -> str:
    """Return a URI without a query, which may be a signature."""
    return model_uri.partition("?")[0]


def _fetch(model_uri: str, folder: Path, names: tuple[str, ...]) -> None:
    """Fetch small files of a model. Raises TokenizerMissing, BadUri."""
    try:
        source, _ = parse_source(model_uri)
        file_filter = FileFilter("model", names)
        fetch(source, file_filter, resolve_revision(source, file_filter), folder, _limited)
    except BadUri:  # a mistake in the address
        raise
    except (InitializerError, StorageError, OSError) as error:
        raise TokenizerMissing(without_credentials(error)) from None


def _limited(total: int) -> ProgressCallback:
    if total > _MAX_BYTES:
        raise InitializerError(
            f"the files of the tokenizer have {total} bytes, and {_MAX_BYTES} are read; tokens are not counted"
        )
    return no_progress


def _run(request: MeasureRequest, folder: Path) -> Measured:
    """Run the program that measures, and return what it has found. Raises TokenizerMissing."""
    asked, answer = folder / "request.json", folder / "answer.json"
    asked.write_bytes(TypeAdapter(MeasureRequest).dump_json(request))
    said: deque[str] = deque(maxlen=1)
    try:
        code = run_in_group(
            [sys.executable, "-P", "-m", _PROGRAM, str(asked), str(answer)],
            environment=tokenizer_environment() | {"HOME": str(folder)},
            timeout_seconds=MAX_SECONDS,
            on_line=lambda line: said.append(line) if line.strip() else None,
        )
    except TimeoutError:
        raise TokenizerMissing(f"counting tokens took more than {MAX_SECONDS:g} s") from None
    if code == -signal.SIGPROF:
        raise TokenizerMissing(f"the chat template takes more than {2 * ROW_SECONDS:g} s for a row")
    try:
        with open(answer, "rb") as file:
            return TypeAdapter(Measured).validate_json(file.read(MAX_ANSWER))
    except (FileNotFoundError, ValidationError):
        raise TokenizerMissing(
            f"counting tokens ended with {code}: {without_credentials(*said or ['no output'])[:300]}"
        ) from None
