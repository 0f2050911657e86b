"""The data of all kinds: what is published today, with a function for each published rule."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from recorders import published_schemas
from recorders.published_messages import messages_text, published_messages
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
