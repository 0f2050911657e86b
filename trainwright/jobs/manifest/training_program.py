"""What a request trains: the command of the training container, and the digest of all that decides on the result. Pure.

The command is a builtin trainer's, a function, packed code, or the given one. A builtin trainer replaces or extends the
program of the runtime.

By the digest a later attempt of the step decides whether checkpoints are its own. A retry resumes from the checkpoints of the
attempt before it, which may have asked for another model: with another learning rate or other data it would end as a mixture of
both. What only says where, how long and how well seen a training runs may change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from trainwright.api import names
from trainwright.api.objects import Obj, name_of
from trainwright.jobs.code.function_arguments import times_of
from trainwright.jobs.manifest.mounts import CODE_MOUNT, is_own_initializer, mounted_inputs
from trainwright.jobs.manifest.resolved_request import ResolvedRequest, initializer_container, trainer_container
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.trainers.builtin_trainers import OwnProgram
from trainwright.jobs.trainers.trl import is_switched_on
from trainwright.runtimes.launcher_text import launcher_text

TORCHRUN, PYTHON = "torchrun", "python3"
_MPIRUN = ["mpirun", "--hostfile", "/etc/mpi/hostfile"]
_VARIABLES = (
    "ACCELERATE_LOG_LEVEL",
    "AIRFLOW_",
    "AWS_",
    "CUDA_",
    "FI_",
    "GLOO_",
    "HF_DATASETS_CACHE",
    "HF_HOME",
    "HF_HUB_",
    "HF_TOKEN",
    "HTTP",
    "LOG_LEVEL",
    "MLFLOW_",
    "NCCL_",
    "NO_PROXY",
    "OMP_",
    "OPENLINEAGE_",
    "OTEL_",
    "PYTHON",
    "PYTORCH_",
    "TOKENIZERS_PARALLELISM",
    "TORCH_",
    "TRACEPARENT",
    "TRANSFORMERS_VERBOSITY",
    "UCX_",
    "WANDB_",
)
"""Beginnings of the names of variables that say how a training talks, logs and reports, and not what it trains."""
_ARGUMENTS = frozenset(
    {
        *("dataloader_num_workers", "dataloader_prefetch_factor", "ddp_timeout", "disable_tqdm", "hub_model_id", "logging_dir"),
        *("logging_first_step", "logging_steps", "report_to", "run_name", "save_steps", "save_strategy", "save_total_limit"),
    }
)
"""Arguments of transformers' Trainer of the same kind."""
_MASKED = "[by reference]"


class CommandAndArgs(NamedTuple):
    """Command and arguments of a TrainJob; empty values keep those of the runtime."""

    command: list[str]
    args: list[str]


def training_command(resolved: ResolvedRequest) -> CommandAndArgs:
    """Return the command of the training container."""
    request, runtime, code, program = resolved.request, resolved.runtime, resolved.code, resolved.program
    if request.func is not None:
        source = ["--function", request.func.name, "--source", request.func.source]
        source += ["--arguments", json.dumps(request.func_args, sort_keys=True)]
        if times := times_of(request.func, request.func_args):
            source += ["--times", json.dumps(times, sort_keys=True)]
        return _with_launcher(request, runtime, source, [_interpreter_for(runtime)])
    if code is not None:
        command = request.command if not request.command[0].endswith(".py") else [_interpreter_for(runtime), *request.command]
        return _with_launcher(request, runtime, ["--code", CODE_MOUNT, "--digest", code.digest], [*command, *request.args])
    if program is not None:
        return CommandAndArgs(program.command, program.args)
    return CommandAndArgs(request.command, request.args)


def _with_launcher(request: TrainRequest, runtime: Obj, source: list[str], program: list[str]) -> CommandAndArgs:
    """Return a command that starts the program with the launcher, whose source is part of the command.

    Kubernetes expands $(NAME) in commands. It is kept in the user's command and package indexes, and escaped in everything else.
    """
    packages = []
    if request.packages_to_install:
        packages = ["--packages", json.dumps(request.packages_to_install), "--indexes", json.dumps(request.pip_index_urls)]
    mpi = _MPIRUN if "mpi" in (runtime["spec"].get("mlPolicy") or {}) else []
    command = [*mpi, PYTHON, "-c", escape_expansion(launcher_text())]
    return CommandAndArgs(command, [*map(escape_expansion, source), *packages, "--", *program])


def _interpreter_for(runtime: Obj) -> str:
    return TORCHRUN if "torch" in (runtime["spec"].get("mlPolicy") or {}) else PYTHON


def loads_best_model(spec: Obj, runtime: Obj) -> bool:
    """Return whether the arguments of a TrainJob, or else of its runtime, tell transformers' Trainer to load the best checkpoint at
    the end. Of several such arguments the last counts.
    """
    trainer, container = spec.get("trainer") or {}, trainer_container(runtime) or {}
    words = [str(word) for part in ("command", "args") for word in trainer.get(part) or container.get(part) or ()]
    return bool(is_switched_on(words, "load_best_model_at_end"))


def escape_expansion(text: str) -> str:
    """Escape `$`, so that Kubernetes expands the result to this text."""
    return text.replace("$", "$$")


def own_program(request: TrainRequest, runtime: Obj) -> OwnProgram:
    """Return the command of the runtime's training container, and how its dataset is prepared."""
    initializer = initializer_container(runtime, names.ANCESTOR_DATASET)
    is_prepared = "dataset" in mounted_inputs(request, runtime) or (initializer is not None and is_own_initializer(initializer))
    command = (trainer_container(runtime) or {}).get("command") or []
    return OwnProgram(tuple(command), prepares_rows=is_prepared, fetches_dataset=initializer is not None)


def training_digest(resolved: ResolvedRequest) -> str:
    """Return the digest of what a request trains: program, arguments, variables, data, base model and their settings.

    Not part of it are the nodes and processes, resources, placement, queues, deadlines, volumes, credentials, logs, where it starts
    from, and what becomes of it.
    """
    text = json.dumps(_trained(resolved), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _trained(resolved: ResolvedRequest) -> Obj:
    request = resolved.request
    trained: Obj = {
        "runtime": [request.placement.runtime_kind, name_of(resolved.runtime)],
        "image": request.image,
        "func": [request.func.name, request.func.source, request.func_args] if request.func is not None else [],
        "code": resolved.code.digest if resolved.code is not None else "",
        "packages": list(request.packages_to_install),
        "builtin": request.builtin,
        "settings": {key: value for key, value in request.settings.items() if key not in _ARGUMENTS},
        "command": list(request.command),
        "args": list(_arguments(request.args)),
        "env": _literal(request.env),
        "dataset": request.dataset_digest
        or [_source(request.dataset_uri), request.data.metadata_loc, _literal(request.data.dataset_env)],
        "model": request.model_digest or [_source(request.model_uri), _literal(request.data.model_env)],
        "patches": list(_patched(request.placement.runtime_patches)),
    }
    if request.manifest is not None:
        spec = request.manifest["spec"]
        trainer, initializer = spec.get("trainer") or {}, spec.get("initializer") or {}
        trained["manifest"] = {
            "trainer": _of_container(trainer),
            "initializer": {
                kind: [part.get("storageUri"), _variables(part.get("env") or ())] for kind, part in initializer.items()
            },
            "patches": list(_patched(spec.get("runtimePatches") or ())),
        }
    return trained


def _arguments(words: Iterable[Any]) -> Iterator[Any]:
    """Yield the arguments but those that may change, each as `--name VALUE` or `--name=VALUE`."""
    skips_value = False
    for word in words:
        name, equals, _ = str(word).removeprefix("--").replace("-", "_").partition("=")
        if skips_value and not str(word).startswith("--"):
            continue  # an argument may have several values
        if str(word).startswith("--") and name in _ARGUMENTS:
            skips_value = not equals
        else:
            skips_value = False
            yield word


def _literal(env: Mapping[str, Any]) -> Obj:
    """Return the values of variables that count. A key of a Secret is a credential, which changes without the training."""
    kept = {name: value for name, value in env.items() if not name.upper().startswith(_VARIABLES)}
    return {
        name: _MASKED if isinstance(value, Mapping) and "secretKeyRef" in (value.get("valueFrom") or {}) else value
        for name, value in kept.items()
    }


def _source(uri: str) -> str:
    """Return a source without the query of an address of the web, which may be a signature."""
    return uri.partition("?")[0] if uri.startswith(("http://", "https://")) else uri


def _patched(patches: Iterable[Obj]) -> Iterator[Obj]:
    """Yield what patches of the runtime change in containers."""
    for patch in patches:
        template = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
        for job in template.get("replicatedJobs") or ():
            pod = (((job.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
            for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
                if changed := _of_container(container):
                    yield {"job": job.get("name"), "container": container.get("name"), **changed}


def _of_container(container: Obj) -> Obj:
    found = {
        "image": container.get("image"),
        "command": list(container.get("command") or ()),
        "args": list(_arguments(container.get("args") or ())),
        "env": _variables(container.get("env") or ()),
    }
    return {key: value for key, value in found.items() if value}


def _variables(env: Iterable[Obj]) -> Obj:
    return _literal({entry["name"]: entry.get("value", entry) for entry in env})
