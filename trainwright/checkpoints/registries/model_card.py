"""The model card of an export: `README.md` with the front matter that the Hub reads, metrics, and where the model comes from.

Everything that others have written is escaped. URIs of the export and its sources are left out in the Hub: a repository may be
public, and a bucket private.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.checkpoints.registries.export_facts import ExportFacts
from trainwright.checkpoints.registries.registration import RegistrationError
from trainwright.checkpoints.training_history import LogHistory
from trainwright.text.foreign_texts import code, escaped, escaped_advice, one_line, table
from trainwright.text.hub_names import is_bare_name
from trainwright.text.text_input import is_number
from trainwright.text.yaml_writer import to_yaml

CARD = "README.md"
CURVE = "loss_curve.svg"
_FOLDER = "./model"
"""Where the page of an export says that its files are: its URI may be secret."""
_OF_EXPORT = "Trainwright has written this card for the export."
_GENERATED = (
    _OF_EXPORT,
    "# Model Card for Model ID",
    "This model card has been generated automatically according to the information the Trainer had access to",
    "It has been trained using [TRL](https://github.com/huggingface/trl).",
)
"""What is in the templates of ours, PEFT, transformers and TRL."""
_METHODS = {
    "sft": "supervised fine-tuning",
    "dpo": "direct preference optimization (DPO)",
    "kto": "Kahneman-Tversky optimization (KTO)",
}
"""What builtin trainers do; others are shown by their names."""
_HUB = "hf://"
_MAX_ROWS = 12
"""Of the table of losses."""
_AUTO_CLASSES = {
    "text-generation": "CausalLM",
    "text-classification": "SequenceClassification",
    "token-classification": "TokenClassification",
    "question-answering": "QuestionAnswering",
    "fill-mask": "MaskedLM",
    "feature-extraction": "FeatureExtraction",
}


@dataclass(frozen=True)
class CardContext:
    """What the facts of the export do not say: the name of the repository, its sources, and whether it has a drawn loss curve."""

    repository: str
    base_model: str = ""
    datasets: tuple[str, ...] = ()
    has_curve: bool = False
    has_training_state: bool = False

    def __post_init__(self) -> None:
        for name in (self.base_model, *self.datasets):
            if name and (name != one_line(name) or not is_bare_name(name)):
                raise RegistrationError(f"{name[:200]!r} is not org/name: a model card refers to models and datasets of the Hub")


def model_card(facts: ExportFacts, context: CardContext) -> str:
    """Return the card in Markdown with YAML front matter."""
    blocks = [
        f"# {escaped(context.repository.rpartition('/')[2])}",
        _summary(facts, context),
        *_metrics(facts),
        *_training(facts, context),
        *_findings(facts),
        "## How to load it",
        _loading(facts, context, context.repository),
        "Pass `revision=` for a certain version.",
        *(["The repository also contains the states from which training resumes."] if context.has_training_state else []),
        "## Provenance",
        _provenance(facts),
        "This card was written by Trainwright. It is left alone once it has been edited.",
    ]
    return f"---\n{to_yaml(_front_matter(facts, context))}---\n\n" + "\n\n".join(blocks) + "\n"


def export_page(facts: ExportFacts) -> str:
    """Return what a model card says of an export before it is registered, in Markdown."""
    title = f"# {escaped(facts.run or facts.default_version)}, step {facts.step}"
    context = CardContext(repository="")
    blocks = [
        title,
        _summary(facts, context),
        *_metrics(facts),
        *_training(facts, context),
        *_findings(facts),
        "## How to load it",
        f"From a folder with its files, here `{_FOLDER}`.",
        _loading(facts, context, _FOLDER),
        "## Provenance",
        _provenance(facts),
    ]
    return "\n\n".join(blocks) + "\n"


def export_card(facts: ExportFacts) -> str:
    """Return the card among the files of an export: its page with front matter."""
    return f"---\n{to_yaml(_front_matter(facts, CardContext(repository='')))}---\n\n{export_page(facts)}\n{_OF_EXPORT}\n"


def is_generated_card(content: bytes) -> bool:
    """Whether a library has written this README into a checkpoint, from a template, or an export has."""
    return any(mark.encode() in content for mark in _GENERATED)


def is_export_card(text: str) -> bool:
    """Whether a README is what `export_card` has written."""
    return _OF_EXPORT in text


def _front_matter(facts: ExportFacts, context: CardContext) -> dict[str, Any]:
    base_model = context.base_model or facts.base_model
    found: dict[str, Any] = {
        "base_model": base_model,
        "base_model_relation": "adapter" if base_model and facts.library == "peft" else "finetune" if base_model else "",
        "datasets": list(context.datasets),
        "library_name": facts.library,
        "pipeline_tag": facts.pipeline_tag,
        "tags": ["trainwright", *([facts.trainer] if facts.trainer else [])],
    }
    return {name: value for name, value in found.items() if value}


def _summary(facts: ExportFacts, context: CardContext) -> str:
    base_model = context.base_model or facts.base_model
    kind = "Adapter" if facts.library == "peft" else "Merged model" if facts.merged else "Checkpoint"
    of = f" of {_hub_link(base_model)}" if base_model else ""
    by = f" by the run {code(facts.run)}" if facts.run else ""
    on = f" on {', '.join(_hub_link(name, 'datasets/') for name in context.datasets)}" if context.datasets else ""
    how = f" with {_METHODS.get(facts.trainer, code(facts.trainer))}" if facts.trainer else ""
    return f"{kind}{of}, trained{how} for {facts.step} steps{on}{by}."


def _metrics(facts: ExportFacts) -> list[str]:
    if not facts.metrics:
        return []
    rows = [(code(name), _number(value)) for name, value in facts.metrics.items()]
    return ["## Metrics", f"As logged by training at step {facts.step}.", table(("metric", "value"), rows)]


def _training(facts: ExportFacts, context: CardContext) -> list[str]:
    losses = _losses(facts.log_history)
    if not losses:
        return []
    picture = [f"![training loss]({CURVE})"] if context.has_curve else []
    shown = losses
    if len(losses) > _MAX_ROWS:  # the first, the last, and others in between
        shown = [losses[round(number * (len(losses) - 1) / (_MAX_ROWS - 1))] for number in range(_MAX_ROWS)]
    rows = [(str(step), *("" if value is None else _number(value) for value in values)) for step, values in shown]
    return ["## Training", *picture, table(("step", "training loss", "evaluated loss"), rows)]


def _findings(facts: ExportFacts) -> list[str]:
    return ["## Dataset", "\n".join(f"- {escaped_advice(line)}" for line in facts.findings)] if facts.findings else []


def _losses(history: LogHistory) -> list[tuple[int, tuple[float | None, float | None]]]:
    """Return step, training and evaluated loss, sorted by step; of several entries for one step the last is used."""
    found: dict[int, dict[str, float]] = {}
    for entry in history:
        step = entry.get("step")
        if isinstance(step, int) and not isinstance(step, bool):
            for name in ("loss", "eval_loss"):
                if is_number(entry.get(name)):
                    found.setdefault(step, {})[name] = float(entry[name])
    return [(step, (values.get("loss"), values.get("eval_loss"))) for step, values in sorted(found.items())]


def _loading(facts: ExportFacts, context: CardContext, name: str) -> str:
    """Say how to load the model; `name` is its repository or folder."""
    auto = _AUTO_CLASSES.get(facts.pipeline_tag, "")
    if facts.library == "peft" and auto:
        lines = _loading_adapter(facts, auto, name)
    elif facts.library == "transformers":
        kind = f"AutoModelFor{auto}" if auto and auto != "FeatureExtraction" else "AutoModel"
        lines = [f"from transformers import {kind}", "", f'model = {kind}.from_pretrained("{name}")']
    else:
        lines = ["from huggingface_hub import snapshot_download", "", f'folder = snapshot_download("{name}")']
    program = "\n".join(["```python", *lines, "```"])
    return "\n\n".join(filter(None, (program, _serving(facts, context, name))))


def _loading_adapter(facts: ExportFacts, auto: str, name: str) -> list[str]:
    """PEFT fetches a base model that is named by a repository or a path, and no other. It does not read generation settings."""
    is_elsewhere = "://" in facts.base_name
    peft, transformers = ("PeftModel", [f"AutoModelFor{auto}"]) if is_elsewhere else (f"AutoPeftModelFor{auto}", [])
    transformers += ["GenerationConfig"] if facts.has_generation else []
    imports = [f"from peft import {peft}", *([f"from transformers import {', '.join(transformers)}"] if transformers else [])]
    loading = (
        ["# ./base is a copy of the base model.", f'base = AutoModelFor{auto}.from_pretrained("./base")'] if is_elsewhere else []
    )
    loading += [f'model = {peft}.from_pretrained({"base, " if is_elsewhere else ""}"{name}")']
    loading += [f'model.generation_config = GenerationConfig.from_pretrained("{name}")'] if facts.has_generation else []
    return [*imports, "", *loading]


def _serving(facts: ExportFacts, context: CardContext, name: str) -> str:
    """The command of vLLM, for models that generate text."""
    if facts.pipeline_tag != "text-generation" or facts.library not in ("peft", "transformers"):
        return ""
    base_model = context.base_model or facts.base_model or "BASE_MODEL"
    adapter = f"vllm serve {base_model} --enable-lora --lora-modules tuned={name}"
    # By default both are those of the base model.
    adapter += f" --generation-config {name}" if facts.has_generation else ""
    adapter += f" --chat-template {name}/chat_template.jinja" if facts.has_chat_template and name == _FOLDER else ""
    return "\n".join(["```bash", adapter if facts.library == "peft" else f"vllm serve {name}", "```"])


def _provenance(facts: ExportFacts) -> str:
    sources = {kind: _public_name(source["source"]) for kind, source in facts.sources.items()}
    revisions = {kind: source["revision"] for kind, source in facts.sources.items() if source["source"].startswith(_HUB)}
    rows = [
        ("manifest of the export", facts.digest),
        ("run", facts.run),
        ("TrainJob", facts.trainjob),
        ("step", str(facts.step)),
        ("started from", "; then ".join(facts.starts)),
        ("used", ", ".join(facts.usage)),
        ("exported", facts.created),
        ("format", facts.format),
        ("number format", facts.dtype),
        ("chat template", "chat_template.jinja" if facts.has_chat_template else ""),
        ("merged from the adapter", facts.merged.get("adapter", "")),
        ("dataset", facts.origin.get("dataset", "")),
        ("source of the dataset", sources.get("dataset", "")),
        ("its revision", revisions.get("dataset", "")),
        ("model", facts.origin.get("model", "")),
        ("source of the model", sources.get("model", "")),
        ("its revision", revisions.get("model", "")),
    ]
    return table(("", ""), [(name, code(value)) for name, value in rows if value])


def _public_name(source: str) -> str:
    """Return a repository of the Hub as it is, and of others only the last part: buckets and folders are private."""
    return source if source.startswith(_HUB) else source.rstrip("/").rpartition("/")[2]


def _hub_link(name: str, kind: str = "") -> str:
    """Link to a repository, whose name `is_bare_name`."""
    return f"[{escaped(name)}](https://huggingface.co/{kind}{name})"


def _number(value: float) -> str:
    return f"{value:.4g}"
