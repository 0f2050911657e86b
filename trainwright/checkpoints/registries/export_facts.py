"""What is known about an export without its weights: where it comes from, how it was measured, and which library loads it.

All of it was written by others, who may be anybody with access to the volume: it is bounded, and never executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export
from trainwright.checkpoints.formats.whole_files import ADAPTER_CONFIG, CONFIG, STATE, parse_state
from trainwright.checkpoints.manifest import MERGED, USAGE, Manifest
from trainwright.checkpoints.origin import TRAINER, Source, name_and_revision, sources_in
from trainwright.checkpoints.special_tokens import GENERATION_CONFIG
from trainwright.checkpoints.training_history import LogHistory, logged_in
from trainwright.checkpoints.training_start import STARTS_KEY
from trainwright.jobs.state.usage import Usage
from trainwright.text.foreign_texts import one_line
from trainwright.text.hub_names import is_bare_name
from trainwright.text.text_input import is_number
from trainwright.workspace.run_record import FINDINGS, finding_lines, finding_names

_MAX_TEXT = 200
_MAX_METRICS = 100
_MAX_STARTS = 6
_URI = re.compile(r" \S+://\S*")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TEMPLATE = "chat_template.jinja"
_TASKS = {
    "CAUSAL_LM": "text-generation",
    "SEQ_CLS": "text-classification",
    "TOKEN_CLS": "token-classification",
    "QUESTION_ANS": "question-answering",
    "FEATURE_EXTRACTION": "feature-extraction",
}
"""Of PEFT, as the Hub calls them."""
_ARCHITECTURES = (
    ("ForCausalLM", "text-generation"),
    ("LMHeadModel", "text-generation"),
    ("ForSequenceClassification", "text-classification"),
    ("ForTokenClassification", "token-classification"),
    ("ForQuestionAnswering", "question-answering"),
    ("ForMaskedLM", "fill-mask"),
)
"""Endings of the classes of transformers."""


@dataclass(frozen=True)
class ExportFacts:
    """`run` and `trainjob` are empty if unknown, as is every text. `log_history` is in the form of transformers' Trainer."""

    uri: str
    digest: str
    step: int
    format: str
    created: str
    supersedes: str = ""
    """The digest of an earlier export of this step."""
    run: str = ""
    trainjob: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    """Digests of the prepared `dataset` and `model`."""
    trainer: str = ""
    """The builtin trainer, such as `sft` or `dpo`."""
    starts: tuple[str, ...] = ()
    """What each job began with that has written to the run's folder, oldest first; without the URIs of exports."""
    usage: tuple[str, ...] = ()
    """What the training used, as texts."""
    merged: dict[str, str] = field(default_factory=dict)
    """Of a merged model: digests of the `adapter` (the manifest of its export) and of the prepared `base_model`."""
    log_history: LogHistory = field(default_factory=list, repr=False)
    base_model: str = ""
    """The base model's repository in the Hub."""
    base_name: str = ""
    """The base model as the configuration of an adapter names it: a repository, a path, or a URI."""
    library: str = ""
    pipeline_tag: str = ""
    sources: dict[str, Source] = field(default_factory=dict)
    """Where `dataset` and `model` were fetched from."""
    dtype: str = ""
    """The number format of a model's weights."""
    has_generation: bool = False
    """Whether an adapter has generation settings, which say where it stops."""
    has_chat_template: bool = False
    findings: tuple[str, ...] = ()
    """What the report on the dataset warns of; without URIs."""
    finding_names: tuple[str, ...] = ()

    @property
    def default_version(self) -> str:
        """A name that is the same whenever the export is registered, and another one for each export."""
        own = "" if self.run and not self.supersedes else f"-{self.digest.partition(':')[2][:8]}"
        return f"{self.run}-step-{self.step}{own}" if self.run else f"step-{self.step}{own}"


def read_facts(export: Export) -> ExportFacts:
    """Read the facts of a published export: its manifest, and a few small JSON files. Raises CheckpointError, StorageError."""
    manifest = export.manifest
    run, trainjob = run_and_job(manifest.source)
    facts = checkpoint_facts(
        lambda path: _verified(export, path),
        {file.path for file in manifest.files},
        step=manifest.step,
        format=manifest.format,
        metrics=manifest.metrics,
        metadata=manifest.metadata,
        run=run,
    )
    return replace(
        facts,
        uri=export.uri,
        digest=manifest.digest,
        created=_text(manifest.created),
        supersedes=manifest.supersedes,
        trainjob=trainjob,
        starts=_starts(manifest),
        usage=_usage(manifest.metadata.get(USAGE)),
    )


def checkpoint_facts(
    read: Callable[[str], bytes | None],
    paths: Collection[str],
    *,
    step: int,
    format: str,
    metrics: Mapping[str, float],
    metadata: Mapping[str, Any],
    run: str,
) -> ExportFacts:
    """Return the facts of a checkpoint before it is published, which every export of it has.

    `read` returns the contents of one of its files, which are at `paths`, or None if it has no such file.
    """
    state = parse_state(read(STATE) or b"") or {}
    adapter, config = _document(read(ADAPTER_CONFIG)), _document(read(CONFIG))
    sources = sources_in(metadata)
    base_name = adapter.get("base_model_name_or_path")
    dtype = config.get("dtype") or config.get("torch_dtype")
    return ExportFacts(
        uri="",
        digest="",
        step=step,
        format=_text(format),
        created="",
        run=_text(run),
        metrics={
            _text(name): value for name, value in sorted(metrics.items())[:_MAX_METRICS] if math.isfinite(value) and _text(name)
        },
        origin=_digests(metadata.get("origin"), ("dataset", "model")),
        trainer=_trainer(metadata),
        merged=_digests(metadata.get(MERGED), ("adapter", "base_model")),
        log_history=logged_in(state) or logged_in(dict(metadata)),
        base_model=_base_model(adapter, config, sources),
        base_name=base_name if isinstance(base_name, str) and base_name == _text(base_name) else "",
        library="peft" if adapter else "transformers" if config.get("architectures") else "",
        pipeline_tag=_pipeline_tag(adapter, config),
        sources=sources,
        dtype=dtype if isinstance(dtype, str) and _NAME.fullmatch(dtype) else "",
        has_generation=bool(adapter) and GENERATION_CONFIG in paths,
        has_chat_template=_TEMPLATE in paths,
        findings=tuple(_URI.sub(" the base model", line) for line in finding_lines(metadata.get(FINDINGS))),
        finding_names=tuple(map(_text, finding_names(metadata.get(FINDINGS)))),
    )


def run_and_job(source: str) -> tuple[str, str]:
    """Split `RUN/TRAINJOB`. The path of a local folder, which the command line records, says nothing to others."""
    if source.startswith("/"):
        return "", ""
    run, slash, trainjob = source.rpartition("/")
    return (_text(run), _text(trainjob)) if slash else (_text(source), "")


def _digests(found: Any, names: tuple[str, ...]) -> dict[str, str]:
    values = found if isinstance(found, dict) else {}
    return {name: values[name] for name in names if isinstance(values.get(name), str) and _DIGEST.fullmatch(values[name])}


def _trainer(metadata: Mapping[str, Any]) -> str:
    origin = metadata.get("origin")
    found = origin.get(TRAINER) if isinstance(origin, dict) else None
    return found if isinstance(found, str) and _NAME.fullmatch(found) else ""


def _usage(found: Any) -> tuple[str, ...]:
    # Not written by this program.
    if not isinstance(found, dict) or not all(is_number(value) for name, value in found.items() if name != "currency"):
        return ()
    saved = found.get("saved_hours")
    return (*map(_text, Usage.from_dict(found).parts()), *([f"{saved:.2f} hours saved by resumption"] if saved else []))


def _starts(manifest: Manifest) -> tuple[str, ...]:
    """A bucket's name is no business of those who read a card: URIs are left out."""
    starts = manifest.metadata.get(STARTS_KEY)
    texts = [_URI.sub("", text) for text in starts if isinstance(text, str)] if isinstance(starts, list) else []
    kept = texts if len(texts) <= _MAX_STARTS else [texts[0], "…", *texts[-_MAX_STARTS + 2 :]]
    return tuple(filter(None, map(_text, kept)))


def _base_model(adapter: dict[str, Any], config: dict[str, Any], sources: Mapping[str, Source]) -> str:
    """Return the base model if it is one of the Hub; a path in a pod says nothing to others."""
    source = name_and_revision(sources["model"])[0] if "model" in sources else ""
    for name in (adapter.get("base_model_name_or_path"), config.get("_name_or_path"), source):
        if isinstance(name, str) and len(name) <= _MAX_TEXT and name == one_line(name) and is_bare_name(name):
            return name
    return ""


def _pipeline_tag(adapter: dict[str, Any], config: dict[str, Any]) -> str:
    task = adapter.get("task_type")
    if isinstance(task, str) and task in _TASKS:
        return _TASKS[task]
    architectures = config.get("architectures")
    for name in architectures if isinstance(architectures, list) else []:
        for ending, tag in _ARCHITECTURES:
            if isinstance(name, str) and name.endswith(ending):
                return tag
    return ""


def _verified(export: Export, path: str) -> bytes | None:
    """Return a small file of the export. Raises CheckpointError if it is corrupt."""
    content = export.read(path)
    if content is not None:
        (listed,) = (file for file in export.manifest.files if file.path == path)
        if hashlib.sha256(content).hexdigest() != listed.sha256:
            raise CheckpointError(f"{export.uri_of(listed)} is corrupt: its SHA-256 differs from the manifest")
    return content


def _document(content: bytes | None) -> dict[str, Any]:
    """Return the object in a JSON file of the checkpoint, empty if it is missing or no object."""
    try:
        document = json.loads(content or b"null")
    except (ValueError, RecursionError):  # a card does without it
        return {}
    return document if isinstance(document, dict) else {}


def _text(text: str) -> str:
    return one_line(text)[:_MAX_TEXT].strip()
