"""The printed CustomResourceDefinitions: upstream's properties, types and enums; and they accept what the table accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from shape_values import objects
from structural import faults
from support.shared_folder import shared_folder
from typer.testing import CliRunner

from trainwright.api.admission.crds import custom_resource_definitions
from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.schema.check import ROOT, findings
from trainwright.api.schema.defaulting import apply_defaults
from trainwright.cli import app

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in custom_resource_definitions()}
UPSTREAM = {
    "TrainJob": "trainer/crds/trainer.kubeflow.org_trainjobs.yaml",
    "TrainingRuntime": "trainer/crds/trainer.kubeflow.org_trainingruntimes.yaml",
    "ClusterTrainingRuntime": "trainer/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
    "JobSet": "jobset/crds/jobset.x-k8s.io_jobsets.yaml",
}
COMPARED = ("type", "enum", "required", "format", "default", "minimum", "maximum", "minLength", "maxLength", "minItems")
COMPARED += ("maxItems", "minProperties", "pattern", "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys")


def schema(kind: str) -> Any:
    return CRDS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def facts(node: Any, path: str = "") -> dict[str, Any]:
    """Every fact of a schema by path, without words."""
    found = {f"{path} {key}": sorted(node[key]) if key == "required" else node[key] for key in COMPARED if key in node}
    if node.get("x-kubernetes-list-type") == "set":
        found[f"{path} set"] = True
    if node.get("x-kubernetes-map-type") == "atomic":
        found[f"{path} atomic"] = True
    for rule in node.get("x-kubernetes-validations", ()):
        found[f"{path} rule {rule['message']}"] = rule["rule"]
    for name, inner in node.get("properties", {}).items():
        found |= facts(inner, f"{path}.{name}")
    if "items" in node:
        found |= facts(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        found |= facts(node["additionalProperties"], f"{path}{{}}")
    return found


@pytest.mark.medium
@pytest.mark.parametrize("kind", UPSTREAM)
def test_the_facts_are_upstreams(kind: str) -> None:
    folder, _, name = UPSTREAM[kind].rpartition("/")
    theirs = yaml.load((shared_folder(f"upstream/{folder}") / name).read_text("utf-8"), yaml.CSafeLoader)
    version = theirs["spec"]["versions"][0]
    ours = CRDS[kind]
    assert ours["metadata"]["name"] == theirs["metadata"]["name"]
    assert ours["spec"]["names"] == theirs["spec"]["names"]
    assert ours["spec"]["scope"] == theirs["spec"]["scope"]
    assert ours["spec"]["versions"][0].get("subresources") == version.get("subresources")
    got, wanted = facts(schema(kind)), facts(version["schema"]["openAPIV3Schema"])
    assert {k: (got.get(k), wanted.get(k)) for k in got.keys() | wanted.keys() if got.get(k) != wanted.get(k)} == {}


@pytest.mark.medium
@pytest.mark.parametrize("kind", UPSTREAM)
def test_the_schema_accepts_what_the_table_accepts(kind: str) -> None:
    admission_spec = ADMISSION_SPECS[kind]

    @given(objects(admission_spec.schema, admission_spec.kind.api_version, kind, wrong=3))
    def check(obj: dict[str, Any]) -> None:
        own, _ = apply_defaults(admission_spec.schema, obj)
        ours = sorted({"" if p.field == ROOT else p.field for p in findings(admission_spec.schema, own).schema_problems})
        assert sorted(set(faults(schema(kind), own))) == ours

    check()


@pytest.mark.parametrize("kind", UPSTREAM)
def test_the_schema_is_structural(kind: str) -> None:
    """What an API server demands of a schema: types everywhere, keys of maps required or with a default, defaults that fit."""

    def walk(node: Any, path: str) -> None:
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        if "default" in node:
            assert not list(faults(node, node["default"])), path
        for key in node.get("x-kubernetes-list-map-keys", ()):
            item = node["items"]
            assert key in item.get("required", ()) or "default" in item["properties"][key], path
        assert not ("properties" in node and "additionalProperties" in node), path
        for name, inner in node.get("properties", {}).items():
            walk(inner, f"{path}.{name}")
        for name in ("items", "additionalProperties"):
            if isinstance(node.get(name), dict):
                walk(node[name], f"{path}.{name}")

    walk(schema(kind), kind)


@pytest.mark.medium
def test_the_command_prints_them() -> None:
    printed = list(yaml.load_all(CliRunner().invoke(app, ["crds"]).stdout, yaml.CSafeLoader))
    assert printed == list(CRDS.values())
    assert json.loads(CliRunner().invoke(app, ["crds", "-o", "json"]).stdout)["items"] == printed


def undescribed(node: Any, path: str) -> Iterator[str]:
    for name, inner in (node.get("properties") or {}).items():
        yield from [] if inner.get("description") else [f"{path}.{name}"]
        yield from undescribed(inner, f"{path}.{name}")
    for part in {"items", "additionalProperties"} & node.keys():
        yield from undescribed(node[part], path)


def test_every_field_is_described() -> None:
    missing = [path for kind in CRDS for path in undescribed(schema(kind), kind)]
    assert missing == [f"{kind}.metadata" for kind in CRDS], "written by make schemas"
