"""Writes the files of deploy/chart and deploy/runtimes that follow from code: rules of roles, runtimes, the version.

The rules are those of `trainwright rbac` and of deploy/controller, the runtimes those of the package. `make docs` runs it, and a test
compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from trainwright import __version__
from trainwright.jobs.submit.rbac_manifests import NAME as GUARD
from trainwright.jobs.submit.rbac_manifests import Extras, rbac_manifests
from trainwright.runtimes.bundled import catalogue_texts
from trainwright.runtimes.image import DEFAULT_IMAGE, PLACEHOLDERS, ImageName, image
from trainwright.submission.jobs_client import Mode
from trainwright.text.yaml_writer import to_yaml

ROOT = Path(__file__).parents[1]
CHART, KUSTOMIZE = ROOT / "deploy" / "chart", ROOT / "deploy" / "runtimes"
_GENERATED = "# Written by `make docs`.\n"
_NAMESPACE = "jobs"


_CONTROLLER_ROLES = {
    "controller": "rbac.yaml",
    "controller-mpi-flux": "mpi-flux.yaml",
    "controller-webhooks": "take-over-webhooks.yaml",
}
"""The files of rules, and where in deploy/controller they are from."""


def files() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of each file."""
    yield CHART / "Chart.yaml", _chart()
    for name, rules in _rules().items():
        yield CHART / f"files/rules/{name}.yaml", _GENERATED + to_yaml(rules)
    runtimes = own_runtimes()
    for name, text in runtimes.items():
        yield CHART / "files/runtimes" / name, text
        yield KUSTOMIZE / name, text
    yield KUSTOMIZE / "kustomization.yaml", _kustomization(list(runtimes))


def own_runtimes() -> dict[str, str]:
    """Return the bundled runtimes that name an image of the project."""
    return {name: text for name, text in catalogue_texts().items() if any(placeholder in text for placeholder in PLACEHOLDERS)}


def _kustomization(names: list[str]) -> str:
    images = [{"name": placeholder, "newName": _image(name), "newTag": __version__} for placeholder, name in PLACEHOLDERS.items()]
    return _GENERATED + to_yaml(
        {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": names, "images": images}
    )


def _image(name: ImageName) -> str:
    return image(name, DEFAULT_IMAGE).rpartition(":")[0]


def _chart() -> str:
    return _GENERATED + to_yaml(
        {
            "apiVersion": "v2",
            "name": "trainwright",
            "description": "Fine-tuning on Kubeflow Trainer: permissions, runtimes, workspaces, and an optional controller",
            "type": "application",
            "version": __version__,
            "appVersion": __version__,
            "kubeVersion": ">=1.30.0-0",
        }
    )


def _rules() -> dict[str, list[Any]]:
    """Return the rules of each role by the name of its file."""
    found = {}
    for mode in (Mode.trainjob, Mode.jobset, Mode.auto):
        manifests = rbac_manifests(_NAMESPACE, [], mode, Extras(True, True, True, guard_image="of the chart", guards_all=True))
        roles = [manifest for manifest in manifests if manifest["kind"].endswith("Role")]
        suffix = "" if mode is Mode.trainjob else f"-{mode}"
        for role in roles:
            if role["metadata"]["name"].startswith(GUARD):
                kind = role["metadata"]["name"].removeprefix(f"{GUARD}-")
                found[f"guard-{kind}" if kind in ("lease", "readers") else f"{mode}-guard"] = role["rules"]
                continue
            kind = role["metadata"]["name"].removeprefix(f"trainwright-steps{suffix}").removeprefix("-")
            where = f"{mode}-{'namespace' if role['kind'] == 'Role' else 'cluster'}"
            found[kind or where] = role["rules"]
    controller = ROOT / "deploy" / "controller"
    for name, file in _CONTROLLER_ROLES.items():
        roles = [role for role in yaml.safe_load_all((controller / file).read_text("utf-8")) if role["kind"] == "ClusterRole"]
        (found[name],) = (role["rules"] for role in roles)
    return found


if __name__ == "__main__":
    for path, text in files():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
