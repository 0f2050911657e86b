"""torchtune with the torch policy: extends `tune run` with a recipe, a config and overrides, derived from the runtime's name.

Source: Trainer's torchtune part of its torch plugin (reference sections 2.10, 4.2 rules 17 to 22).
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.materialize.draft import Draft
from trainwright.materialize.resources import gpu_count, main_host, processes_per_node, resources_for_process_count

COMMAND = ["tune", "run"]
LLAMA_1B, LLAMA_3B, LLAMA_70B, QWEN = "llama3_2/1B", "llama3_2/3B", "llama3_3/70B", "qwen2_5/1.5B"
LLAMA_8B = "llama3_1/8B"
"""Not in Trainer's list, but torchtune has the same recipes and configs for it."""
MODELS = (LLAMA_1B, LLAMA_3B, LLAMA_70B, QWEN, LLAMA_8B)
FIXED = ("output_dir", "tokenizer.path", "tokenizer.merges_file", "checkpointer.checkpoint_dir")
"""Options set by the runtime: taken from its command, rejected in a TrainJob's arguments."""


class TorchTunePolicy:
    name = "torchtune"

    def validate(self, draft: Draft) -> Iterator[Problem]:
        if not runs_torchtune(draft):
            return
        model, trainer = _model(draft), draft.trainer or {}
        if model not in MODELS:
            yield Problem(
                "spec.runtimeRef.name",
                f'Invalid value: "{_runtime_name(draft)}": must have a supported pretrained model, invalid model configured: {model}',
            )
        nodes = 1 if trainer.get("numNodes") is None else trainer["numNodes"]
        if nodes > 1 and model != LLAMA_70B:
            yield Problem("spec.trainer.numNodes", f"Invalid value: {nodes}: must be 1 for {model} model")
        yield from _qlora_problems(draft, model, nodes)
        if nodes > 1 and (_uses_lora(draft) or _uses_qlora(draft)):
            message = f"Invalid value: {nodes}: LoRA fine-tuning is not supported for multi-node training in TorchTune"
            yield Problem("spec.trainer.numNodes", message)
        for index, argument in enumerate(_arguments(draft)):
            if (key := argument.partition("=")[0]) in FIXED:
                message = f'Invalid value: "{argument}": {key!r} is managed by the runtime, and must not be set in args'
                yield Problem(f"spec.trainer.args[{index}]", message)

    def enforce_ml_policy(self, draft: Draft) -> None:
        if not runs_torchtune(draft) or draft.trainer is None:
            return
        pods = draft.trainer_pods()
        nodes = pods.count if pods is not None else 1
        recipe, suffix = _recipe(draft, nodes)
        rendezvous = [f"--rdzv_endpoint={main_host(draft)}:{names.RENDEZVOUS_PORT}"] if _is_distributed(draft, nodes) else []
        config = ["--config", _model(draft) + suffix]
        draft.trainer["command"] = [*COMMAND, *rendezvous, recipe, *config, *_overrides(draft)]


def runs_torchtune(draft: Draft) -> bool:
    """Whether the TrainJob's command is exactly `tune run`, on a runtime with the torch policy."""
    return draft.policy("torch") is not None and (draft.trainer or {}).get("command") == COMMAND


def _runtime_name(draft: Draft) -> str:
    return str(draft.trainjob["spec"]["runtimeRef"]["name"])


def _model(draft: Draft) -> str:
    """Return the model: `torchtune-llama3.2-1b` is `llama3_2/1B`; empty for a name without exactly three parts."""
    parts = _runtime_name(draft).split("-")
    return f"{parts[1].replace('.', '_')}/{parts[2].upper()}" if len(parts) == 3 else ""


def _arguments(draft: Draft) -> list[str]:
    return (draft.trainer or {}).get("args") or []


def _uses_lora(draft: Draft) -> bool:
    return any("model.lora_attn_modules" in argument for argument in _arguments(draft))


def _uses_qlora(draft: Draft) -> bool:
    return _is_on(draft, "model.quantize_base") and not _is_on(draft, "model.use_dora")


def _is_on(draft: Draft, option: str) -> bool:
    pairs = (argument.partition("=") for argument in _arguments(draft))
    return any(option in key and equals and value.strip().lower() == "true" for key, equals, value in pairs)


def _qlora_problems(draft: Draft, model: str, nodes: int) -> Iterator[Problem]:
    if not _uses_qlora(draft):
        return
    if model == QWEN:
        message = f'Invalid value: "{_runtime_name(draft)}": QLoRA is not supported for {model} model'
        yield Problem("spec.runtimeRef.name", message)
    number = (draft.trainer or {}).get("numProcPerNode")
    single = nodes == 1 and (number == 1 or gpu_count(resources_for_process_count(draft)) == 1)
    if model in (LLAMA_1B, LLAMA_3B) and not single:
        shown = '"auto"' if number is None else number
        message = f"Invalid value: {shown}: must be auto or 1 for {model} model when using QLoRA"
        yield Problem("spec.trainer.numProcPerNode", message)
        message = f"Invalid value: must have one gpu for {model} model when using QLoRA"
        yield Problem("spec.trainer.resourcesPerNode", message)


def _is_distributed(draft: Draft, nodes: int) -> bool:
    number = processes_per_node(draft)
    return nodes > 1 or (gpu_count(resources_for_process_count(draft)) > 1 if number == "auto" else int(number) > 1)


def _recipe(draft: Draft, nodes: int) -> tuple[str, str]:
    """Return the recipe and the suffix of its config. Multi-node supports only full fine-tuning."""
    if nodes != 1:
        return "full_finetune_distributed", "_full_multinode" if nodes > 1 else "_full"
    single = processes_per_node(draft) == "1" or gpu_count(resources_for_process_count(draft)) == 1
    where, device = ("single_device", "_single_device") if single else ("distributed", "")
    if _uses_qlora(draft):
        return f"lora_finetune_{where}", f"_qlora{device}"
    if _uses_lora(draft):
        return f"lora_finetune_{where}", f"_lora{device}"
    return f"full_finetune_{where}", f"_full{device}"


def _overrides(draft: Draft) -> list[str]:
    trainers = [pods.container(names.NODE) for pods in draft.pod_sets if pods.ancestor == names.ANCESTOR_TRAINER]
    commands = [(container or {}).get("command") or [] for container in trainers]
    return [item for command in commands for item in command if item.partition("=")[0] in FIXED]
