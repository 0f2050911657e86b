"""An account that lacks one right of those that `trainwright rbac` prints: what works without it, and what the person is told.

The account submits code with a workspace, waits and follows the log; then `trainwright doctor` must name the right.
"""

from __future__ import annotations

import json
import re

from acceptance.rights import Right, without
from acceptance.scene import Scene
from acceptance.stage import TORCH, Stage
from acceptance.told import Told
from trainwright.jobs.submit.rbac_manifests import ServiceAccount, rbac_manifests

REQUIRED, OPTIONAL = 4, 0
"""Exit codes of the submission: it fails and names the right, or does without."""
OUTCOMES = {
    "create trainjobs": REQUIRED,
    "list trainjobs": REQUIRED,
    "get trainingruntimes": REQUIRED,  # of which one is used
    "create configmaps": REQUIRED,  # for the code
}
"""By verb and resource; without any other the submission succeeds."""
KUEUE = {"workloads", "localqueues"}
QUICK = {"create trainjobs", "list pods"}
DOCTOR = "--- doctor says:"
OWN = (*TORCH, "--workspace", "pvc://{claim}")


def _scene(right: Right) -> Scene:
    def is_taken(other: Right) -> bool:
        return (other.verb, other.group, other.resource) == (right.verb, right.group, right.resource)

    def act(stage: Stage) -> Told:
        account = f"lacks-{stage.name[-4:]}"
        manifests = without(stage.admin.printed_rights(stage.namespace, account), is_taken)
        kubeconfig = str(stage.admin.make_account(stage.namespace, account, manifests))
        told = stage.trainwright(
            *("submit", "--run-id", "{name}", "--wait", "--logs", "--timeout", "90", *OWN),
            *("--code", "{folder}/code", "--command", "python3 train.py"),
            KUBECONFIG=kubeconfig,
        )
        doctor = stage.trainwright("doctor", "-o", "json", KUBECONFIG=kubeconfig)
        return Told(told.words, told.code, told.out, f"{told.err}\n{DOCTOR}\n{doctor.out}", told.seconds)

    def check(_stage: Stage, told: Told) -> None:
        expected = OUTCOMES.get(f"{right.verb} {right.resource}", OPTIONAL)
        said, _, doctor = told.text.partition(DOCTOR)
        assert told.code == expected, f"exit code {told.code} instead of {expected}"
        if expected == REQUIRED:
            assert _names(right, said), "the refusal does not name the right"
        findings = [one for one in json.loads(doctor)["findings"] if one["check"] == "access" and one["level"] != "ok"]
        assert any(_names(right, json.dumps(one)) for one in findings), f"doctor does not name it: {findings}"

    mark = ("quick",) if f"{right.verb} {right.resource}" in QUICK else ()
    needs = ("Kueue",) if right.resource in KUEUE else ()
    return Scene(
        f"{right.verb} {right.resource}", act, check, marks=mark, needs=needs, files={"code/train.py": "print('trained')\n"}
    )


def _names(right: Right, text: str) -> bool:
    resource = right.resource.replace("/", r".{1,3}")
    return re.search(rf"{right.verb} (resource )?\W*{resource}", text) is not None


def _rights() -> list[Right]:
    manifests = rbac_manifests("namespace", [ServiceAccount("namespace", "account")])
    found: dict[str, Right] = {}
    for manifest in manifests:
        for rule in manifest.get("rules") or []:
            for verb in rule["verbs"]:
                right = Right(verb, rule["apiGroups"][0], rule["resources"][0], manifest["metadata"].get("namespace", ""))
                found.setdefault(str(right), right)
    return list(found.values())


SCENES = [_scene(right) for right in _rights()]
