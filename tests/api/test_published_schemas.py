"""The data of all kinds: what is published today, with a function for each published rule."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from recorders import published_schemas
from recorders.published_messages import messages_text, published_messages
from recorders.published_schemas import Tree, tree_of
from support.shared_folder import shared_folder

from trainwright.api.admission.admit import admit
from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.errors import BadRequest
from trainwright.api.schema.published import DESCRIPTIONS_FILE, TYPES_FILE, struct_named
from trainwright.api.schema.rules import HOLDS, UNCHANGED, published_rule
from trainwright.controlplane.apiserver.wire.protobuf import MESSAGES_FILE

TYPES = json.loads(TYPES_FILE.read_bytes())
MESSAGES = json.loads(MESSAGES_FILE.read_bytes())


@pytest.mark.skipif(not published_schemas.KUBERNETES.exists(), reason="`make schemas` downloads the schemas of Kubernetes")
def test_data_is_regenerated_unchanged() -> None:
    found = published_schemas.published_types(published_schemas.KUBERNETES, shared_folder("upstream"))
    assert TYPES_FILE.read_text("utf-8") == published_schemas.types_text(found.types)
    assert DESCRIPTIONS_FILE.read_text("utf-8") == published_schemas.descriptions_text(found.texts)
    numbers = json.loads((shared_folder("upstream/protobuf") / "fields.json").read_bytes())
    messages = published_messages(numbers, published_schemas.definitions_of(published_schemas.KUBERNETES))
    assert MESSAGES_FILE.read_text("utf-8") == messages_text(messages)


def test_every_kind_has_a_schema() -> None:
    assert {name: struct_named(name).name for name in ADMISSION_SPECS} == {name: name for name in ADMISSION_SPECS}


def type_of(node: Any) -> str:
    """The type of a field as in protobuf messages."""
    if isinstance(node, dict):
        if "items" in node:
            return f"[{type_of(node['items'])}]"
        return f"map<{type_of(node['values'])}>" if "values" in node else type_of(node["type"])
    scalars = {"boolean": "bool", "byte": "bytes", "date-time": "Time", "int-or-string": "IntOrString", "quantity": "Quantity"}
    return re.sub(r"[\w-]+", lambda found: scalars.get(found[0], found[0]), node)


def message_fields(name: str) -> dict[str, str]:
    found = {}
    for field, sort in MESSAGES[name].values():
        found |= {field: sort.removeprefix("*").replace("MicroTime", "Time")} if field else message_fields(sort)
    return found


def test_types_and_messages_agree() -> None:
    """Two sources publish the fields of built-in types."""
    both = TYPES.keys() & MESSAGES.keys()
    assert len(both) > 200
    types = {name: {field: type_of(node) for field, node in TYPES[name]["fields"].items()} for name in both}
    messages = {name: message_fields(name) for name in both}
    messages["ManagedFieldsEntry"]["fieldsV1"] = "any"
    for name, fields in types.items():
        if fields.get("metadata") == "any":  # a kind
            messages[name] |= {"apiVersion": "string", "kind": "string", "metadata": "any"}
    assert {name: fields for name, fields in types.items() if fields != messages[name]} == {}


def rules(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(rules, node))
    if isinstance(node, dict):
        return {rule["rule"] for rule in node.get("rules", ()) if isinstance(rule, dict)}.union(*map(rules, node.values()))
    return set()


def test_every_rule_has_a_function_and_every_function_a_rule() -> None:
    assert rules(TYPES) == {*HOLDS, UNCHANGED}


def test_new_rule_is_named() -> None:
    with pytest.raises(LookupError, match=r"the rule 'self <= 9' \(at most 9\) has no function"):
        published_rule({"rule": "self <= 9", "message": "at most 9"})


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "integer", "multipleOf": 2}, "multipleOf"),
        ({"type": "object", "anyOf": [{"required": ["a"]}]}, "anyOf"),
        ({"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "reason": "x", "message": "m"}]}, "reason"),
    ],
)
def test_new_keyword_is_named(schema: Any, keyword: str) -> None:
    with pytest.raises(ValueError, match=rf"TrainJob\.spec has unknown keywords: {keyword}"):
        tree_of(schema, "TrainJob.spec", read)


def read(schema: Any, path: str) -> Tree:
    return tree_of(schema, path, read)


def paths(tree: Tree, path: str) -> set[str]:
    found = {path}
    for part in {"items", "values"} & tree.keys():
        found |= paths(tree[part], path)
    for field, inner in tree.get("fields", {}).items():
        found |= paths(inner, f"{path}.{field}")
    return found


def fields_of(version: str) -> set[str]:
    found = set()
    for kind in ("trainjobs", "trainingruntimes"):
        file: Path = shared_folder(f"upstream/trainer/crds{version}") / f"trainer.kubeflow.org_{kind}.yaml"
        document = yaml.load(file.read_text("utf-8"), yaml.CSafeLoader)
        found |= paths(read(document["spec"]["versions"][0]["schema"]["openAPIV3Schema"], ""), document["spec"]["names"]["kind"])
    return found


POD = "template.spec.replicatedJobs.template.spec.template.spec"


@pytest.mark.parametrize(
    ("before", "after", "new", "gone"),
    [
        (
            "-v2.1.0",
            "-v2.2.1",
            {
                "TrainJob.spec.activeDeadlineSeconds",
                "TrainJob.spec.runtimePatches",
                "TrainJob.status.trainerStatus",
                "TrainingRuntime.spec.mlPolicy.flux",
                "TrainingRuntime.spec.mlPolicy.jax",
                "TrainingRuntime.spec.mlPolicy.xgboost",
                "TrainingRuntime.spec.template.spec.volumeClaimPolicies",
                f"TrainingRuntime.spec.{POD}.schedulingGroup",
                f"TrainingRuntime.spec.{POD}.volumes.projected.sources.podCertificate.userAnnotations",
            },
            {
                "TrainJob.spec.annotations",
                "TrainJob.spec.labels",
                "TrainJob.spec.podTemplateOverrides",
                "TrainingRuntime.spec.mlPolicy.torch.elasticPolicy",
                "TrainingRuntime.spec.mlPolicy.torch.numProcPerNode",
            },
        ),
        (
            "-v2.2.1",
            "-v2.3.0",
            {
                f"TrainJob.spec.runtimePatches.trainingRuntimeSpec.{POD}.terminationGracePeriodSeconds",
                "TrainingRuntime.spec.mlPolicy.torch.envInjection",
            },
            set(),
        ),
        ("-v2.3.0", "", set(), set()),
    ],
)
def test_fields_that_versions_of_trainer_add_and_remove(before: str, after: str, new: set[str], gone: set[str]) -> None:
    old, now = fields_of(before), fields_of(after)
    assert {path for path in now - old if path.rpartition(".")[0] in old} == new
    assert {path for path in old - now if path.rpartition(".")[0] in now} == gone


TEMPLATE = {
    "metadata": {"creationTimestamp": None},
    "spec": {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never"},
}


def test_template_of_a_job_has_all_fields_of_metadata() -> None:
    """`kubectl create job --dry-run=client -o yaml` prints a creationTimestamp."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": TEMPLATE}}
    assert "creationTimestamp" not in admit(job).object["spec"]["template"]["metadata"]


def test_template_in_a_jobset_has_the_fields_of_metadata_that_its_definition_has() -> None:
    job = {"name": "a", "template": {"spec": {"template": TEMPLATE}}}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "a"},
        "spec": {"replicatedJobs": [job]},
    }
    with pytest.raises(
        BadRequest, match=r'unknown field "spec.replicatedJobs\[0\].template.spec.template.metadata.creationTimestamp"'
    ):
        admit(jobset)


def test_wrong_type_is_reported_with_the_type_that_has_the_field() -> None:
    probe = {"httpGet": {"port": 80, "path": 1}}
    pod = {"containers": [{"name": "c", "image": "x", "livenessProbe": probe}]}
    with pytest.raises(
        BadRequest, match=r"Go struct field HTTPGetAction\.spec\.containers\.livenessProbe\.httpGet\.path of type string"
    ):
        admit({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod})
