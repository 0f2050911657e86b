"""Claims that tasks mount, in a run on this machine: instead of the mount path, a step gets the folder of the claim.

A process of this machine mounts nothing, and `/workspace` of the machine is another folder than that of the claim, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.local_values import BadValue, Values
from trainwright.text.foreign_texts import one_line

_PATH, _TRAINING = "workspace_path", "TASK_CONFIG"
_FILE = "file://"


def claim_mounts(platform: Obj) -> dict[str, list[Obj]]:
    """Return the mounts of each executor, by the label of the executor. `platform` is the second document of a compiled pipeline."""
    executors = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    return {label: settings["pvcMount"] for label, settings in executors.items() if settings.get("pvcMount")}


def use_claims(
    component: Obj,
    inputs: Values,
    mounts: Sequence[Obj],
    name_of: Callable[[Obj], str],
    folder_of: Callable[[str], str],
) -> Values:
    """Return the inputs of a task with the folders of claims for paths below their mounts, also in defaults.

    Only components of this project are changed, which have an input `workspace_path`: other programs have the path in their code, and
    a warning names them. Of a training, only that input is of this machine; its other paths are those of its pods.

    Args:
        component: The task's component.
        inputs: Its inputs.
        mounts: What it mounts, as kfp.kubernetes writes it.
        name_of: Returns the name of a claim that a mount refers to.
        folder_of: Returns the folder of a claim on this machine, empty without one.

    Raises BadValue for a claim without a folder here.
    """
    declared = component.get("inputDefinitions", {}).get("parameters", {})
    if _PATH not in declared:
        return inputs
    is_training = any(about.get("parameterType") == _TRAINING for about in declared.values())
    names = [_PATH] if is_training else [name for name, about in declared.items() if about.get("parameterType") == "STRING"]
    found = dict(inputs)
    for mount in mounts:
        for name in names:
            value = found.get(name, declared[name].get("defaultValue"))
            below = _below(value, mount["mountPath"]) if isinstance(value, str) else None
            if below is not None:
                scheme = _FILE if str(value).startswith(_FILE) else ""
                found[name] = scheme + str(_folder(mount, name_of, folder_of) / below)
    return found


def _below(value: str, mount_path: str) -> PurePosixPath | None:
    path = PurePosixPath(value.removeprefix(_FILE))
    return path.relative_to(mount_path) if path.is_relative_to(mount_path) else None


def _folder(mount: Mapping[str, Obj], name_of: Callable[[Obj], str], folder_of: Callable[[str], str]) -> Path:
    claim, sub_path = name_of(mount["pvcNameParameter"]), PurePosixPath(str(mount.get("subPath") or ""))
    if not (folder := folder_of(claim)):
        raise BadValue(
            f"mount_pvc: the claim {one_line(claim)!r} has no folder on this machine: it does not exist, or the cluster is not an "
            f"embedded one of this machine; set {_PATH} to a folder, or create the claim (`start_run` does)"
        )
    if sub_path.is_absolute() or ".." in sub_path.parts:
        raise BadValue(f"mount_pvc: sub_path {one_line(str(sub_path))!r} leads out of the claim")
    below = Path(folder, sub_path)
    below.mkdir(parents=True, exist_ok=True)  # as a kubelet does
    return below
