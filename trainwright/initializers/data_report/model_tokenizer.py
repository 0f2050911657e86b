"""The tokenizer of a model: fetched without the weights, and loaded as transformers loads it, without transformers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from trainwright.initializers.data_report.chat_template import ChatTemplate
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.file_filter import FileFilter
from trainwright.initializers.prepare import parse_source
from trainwright.initializers.source import fetch, resolve_revision
from trainwright.storage.digests import no_progress
from trainwright.storage.errors import BadUri, StorageError
from trainwright.text.foreign_texts import without_credentials

_TOKENIZER, _CONFIG, _SPECIAL = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
_TEMPLATE, _TEMPLATES = "chat_template.jinja", "additional_chat_templates"
_FILES = (_TOKENIZER, _CONFIG, _SPECIAL, _TEMPLATE, f"{_TEMPLATES}/*.jinja")
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_DEFAULT, _WITH_TOOLS = "default", "tool_use"


class TokenizerMissing(Exception):
    """The tokenizer cannot be had here; the message says why. The training may have it all the same."""


class ModelTokenizer:
    """Encodes texts to token ids, and renders conversations."""

    def __init__(self, folder: Path):
        """Load the tokenizer in a folder. Raises TokenizerMissing."""
        config = _read_object(folder / _CONFIG)
        if "added_tokens_decoder" not in config:  # of older models
            config.update(_read_object(folder / _SPECIAL))
        self.special_tokens = {name: found for name in _SPECIAL_TOKENS if (found := _content_of(config.get(name)))}
        self.eos = self.special_tokens.get("eos_token", "")
        self._tokenizer = _load(folder / _TOKENIZER, config, self.special_tokens)
        self._sources = _templates(folder, config)
        self._compiled: dict[str, ChatTemplate] = {}

    @property
    def has_chat_template(self) -> bool:
        return _DEFAULT in self._sources

    def chat_template(self, tools: Any) -> ChatTemplate:
        """Return the template for a conversation with these tools. Raises KeyError without any, TemplateRejects if it is not valid."""
        name = _WITH_TOOLS if tools is not None and _WITH_TOOLS in self._sources else _DEFAULT
        if name not in self._compiled:
            self._compiled[name] = ChatTemplate(self._sources[name], self.special_tokens)
        return self._compiled[name]

    def encode(self, texts: list[str], *, add_special_tokens: bool) -> list[list[int]]:
        """Return the token ids of each text, by default with the tokens that the tokenizer puts around it."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids, special tokens included."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))


def fetch_tokenizer(model_uri: str) -> ModelTokenizer:
    """Fetch and load the tokenizer of a model, none of its weights.

    Raises TokenizerMissing (no access, offline, no fast tokenizer, packages are missing), BadUri.
    """
    try:
        import jinja2  # noqa: F401 (whether it is there)
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise TokenizerMissing(f"{error.name} is not installed: install trainwright[launcher]") from None
    with tempfile.TemporaryDirectory(prefix="trainwright-tokenizer-") as folder:
        try:
            source, _ = parse_source(model_uri)
            file_filter = FileFilter("model", _FILES)
            fetch(source, file_filter, resolve_revision(source, file_filter), Path(folder), lambda _total: no_progress)
        except BadUri:
            raise
        except (InitializerError, StorageError, OSError) as error:
            raise TokenizerMissing(without_credentials(error)) from None
        return ModelTokenizer(Path(folder))


def _load(path: Path, config: dict[str, Any], special_tokens: dict[str, str]) -> Any:
    """Load the file, and add the tokens that only the configuration beside it has. The file alone says what is put around a text."""
    from tokenizers import AddedToken, Tokenizer

    if not path.is_file():
        raise TokenizerMissing(f"the model has no {_TOKENIZER}; tokens are counted with that file only")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more specific
        raise TokenizerMissing(f"{_TOKENIZER} cannot be read: {str(error)[:200]}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    declared = config.get("added_tokens_decoder")
    for _, token in sorted((declared if isinstance(declared, dict) else {}).items(), key=lambda item: int(item[0])):
        if isinstance(token, dict) and (content := _content_of(token)) not in known:
            tokenizer.add_tokens([AddedToken(content, **{name: bool(token.get(name)) for name in _TOKEN_FLAGS})])
    tokenizer.add_special_tokens([token for token in (*special_tokens.values(), *_extra_tokens(config)) if token not in known])
    return tokenizer


def _extra_tokens(config: dict[str, Any]) -> list[str]:
    """Return the special tokens that have no role common to all models."""
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    listed = [*extra.values()] if isinstance(extra, dict) else extra
    named = [value for name, value in config.items() if name.endswith("_token") and name not in _SPECIAL_TOKENS]
    return [found for token in (*listed, *named) if (found := _content_of(token))]


def _templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Return the chat templates by name: files before the configuration, as transformers reads them."""
    found = {path.stem: path.read_text("utf-8") for path in sorted((folder / _TEMPLATES).glob("*.jinja"))}
    if (folder / _TEMPLATE).is_file():
        found[_DEFAULT] = (folder / _TEMPLATE).read_text("utf-8")
    declared = config.get("chat_template")
    if found or not declared:
        return found
    if isinstance(declared, str):
        return {_DEFAULT: declared}
    named = [each for each in declared if isinstance(each, dict)] if isinstance(declared, list) else []
    return {str(each.get("name")): str(each.get("template")) for each in named}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise TokenizerMissing(f"{path.name} is not JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def _content_of(token: Any) -> str:
    """Return the text of a special token, which may be an object."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""
