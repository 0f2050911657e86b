"""Writes the data of `trainwright.api.schema` from published schemas of Kubernetes, Kubeflow Trainer and JobSet (Apache License 2.0).

`make schemas` runs it. A new version is a new source: `KUBERNETES_VERSION` for Kubernetes, the shared folder for Trainer and JobSet.

Every schema becomes a tree of one form. Schemas of Kubernetes name their types. CustomResourceDefinitions do not: `schema_overlay`
names them, and below a type of Kubernetes its parts are named alike. Then each type is written once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tiers
import yaml
from support.shared_folder import shared_path

from recorders.published_messages import messages_text, published_messages
from recorders.schema_overlay import CRD_TYPES, DEFAULTS, MERGE_KEYS, SCALARS, UNREAD, WRITTEN
from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.schema.check import QUANTITY_PATTERN
from trainwright.api.schema.published import DESCRIPTIONS_FILE, TYPES_FILE
from trainwright.api.schema.rules import published_rule
from trainwright.controlplane.apiserver.discovery.documents import KUBERNETES_VERSION
from trainwright.controlplane.apiserver.wire.protobuf import MESSAGES_FILE

KUBERNETES = tiers.ROOT / "build/kubernetes-schemas/kubernetes_validate/kubernetes-json-schema"
"""What `make schemas` installs there."""
Tree = dict[str, Any]
"""`type` of a scalar, `items` of a list, `values` of a map or `fields` of a struct, beside the limits of the value."""
CUSTOM = [spec.kind for spec in ADMISSION_SPECS.values() if spec.custom]
BUILT_IN = [spec.kind for spec in ADMISSION_SPECS.values() if not spec.custom]
LIMITS = ("minLength", "maxLength", "pattern", "enum", "minimum", "maximum", "minItems", "maxItems", "minProperties", "default")
EMBEDDED_TYPES = (
    "io.k8s.api.batch.v1.JobTemplateSpec",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Condition",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
)
"""Types that no built-in kind above has, but a CustomResourceDefinition."""
K8S = "x-kubernetes-"
READ = {*LIMITS, "type", "format", "description", "properties", "required", "items", "additionalProperties", "anyOf"}
READ |= {K8S + name for name in ("int-or-string", "list-type", "list-map-keys", "map-type", "validations")}
READ |= {K8S + name for name in ("patch-merge-key", "patch-strategy", "group-version-kind", "unions")}
"""Keywords that are understood, or do not limit values. Any other one stops the generator."""
EMBEDDED = "custom/"
"""Prefix of a type of Kubernetes that CustomResourceDefinitions embed in another form."""
ENOUGH, MOST = 40, 400
"""Characters of a description that needs no further sentence, and of any description."""


def read_kubernetes(folder: Path) -> dict[str, Tree]:
    """Return the trees of built-in kinds, and of all types in them, by name."""
    definitions = definitions_of(folder)
    found: dict[str, Tree] = {}

    def read(schema: Any, path: str) -> Tree:
        if "$ref" in schema:
            retained = {"retainKeys": True} if "retainKeys" in schema.get(f"{K8S}patch-strategy", "") else {}
            return {**of_type(schema["$ref"].rpartition("/")[2]), "text": schema.get("description", ""), **retained}
        return tree_of(schema, path, read)

    def of_type(full: str) -> Tree:
        name = full.rpartition(".")[2]
        if name in SCALARS:
            return {"type": SCALARS[name]}
        if name in UNREAD:
            return {"type": "any"}
        if name not in found:
            found[name] = {**read(definitions[full], name), "name": name, "full": full}
        if found[name]["full"] != full:
            raise ValueError(f"{full} and {found[name]['full']} have one name")
        return found[name]

    wanted = {(kind.group, kind.version, kind.kind) for kind in BUILT_IN}
    for full, definition in definitions.items():
        for gvk in definition.get(f"{K8S}group-version-kind", ()):
            if (gvk["group"], gvk["version"], gvk["kind"]) in wanted:
                as_object(of_type(full))
    for full in EMBEDDED_TYPES:
        of_type(full)
    return found


def definitions_of(folder: Path) -> dict[str, Any]:
    """Return the schemas of Kubernetes by full name."""
    version = "v{}.{}.0-local".format(*KUBERNETES_VERSION.split("."))
    found: dict[str, Any] = json.loads((folder / version / "_definitions.json").read_bytes())["$defs"]
    return found


def read_definitions(upstream: Path) -> dict[str, Tree]:
    """Return the trees of custom kinds, without names of their types."""

    def read(schema: Any, path: str) -> Tree:
        return tree_of(schema, path, read)

    found = {}
    for file in sorted([*upstream.glob("trainer/crds/*.yaml"), *upstream.glob("jobset/crds/*.yaml")]):
        for document in yaml.load_all(file.read_text("utf-8"), yaml.CSafeLoader):
            kind = document["spec"]["names"]["kind"]
            for version in document["spec"]["versions"]:
                if (kind, version["name"]) in {(one.kind, one.version) for one in CUSTOM}:
                    found[kind] = as_object(read(version["schema"]["openAPIV3Schema"], kind))
    return found


def as_object(tree: Tree) -> Tree:
    """Change the tree of a kind, in place, where all kinds are alike; `metadata` is validated separately."""
    for name, kind in (("apiVersion", "string"), ("kind", "string"), ("metadata", "any")):
        tree["fields"][name] = {"type": kind, "text": tree["fields"][name].get("text", "")}
    return tree


def tree_of(schema: Any, path: str, read: Callable[[Any, str], Tree]) -> Tree:
    """Return the tree of a published schema; `read` is called for its parts."""
    unknown = (schema.keys() - READ).union(*(rule.keys() - {"rule", "message"} for rule in schema.get(f"{K8S}validations", ())))
    if "anyOf" in schema and not schema.get(f"{K8S}int-or-string"):
        unknown.add("anyOf")
    if unknown:
        raise ValueError(f"{path} has unknown keywords: {', '.join(sorted(unknown))}")
    kind = schema.get("type", "any")
    kind = kind if isinstance(kind, str) else kind[0]  # the schemas of Kubernetes say ["string", "null"]
    made: Tree = {key: schema[key] for key in LIMITS if key in schema}
    if rules := schema.get(f"{K8S}validations"):
        made["rules"] = rules
    if text := schema.get("description"):
        made["text"] = text
    if "retainKeys" in schema.get(f"{K8S}patch-strategy", ""):
        made["retainKeys"] = True
    if schema.get(f"{K8S}int-or-string"):
        pattern = made.pop("pattern", None)
        if pattern not in (None, QUANTITY_PATTERN):
            raise ValueError(f"{path} has an unknown pattern: {pattern}")
        return made | {"type": "quantity" if pattern else "int-or-string"}
    if kind == "array":
        return made | list_of(schema, path, read)
    if kind == "object" and "additionalProperties" in schema:
        return made | {"values": read(schema["additionalProperties"], path), **atomic(schema)}
    if kind == "object":
        fields = {name: read(inner, f"{path}.{name}") for name, inner in sorted(schema.get("properties", {}).items())}
        return made | {"fields": fields, "required": sorted(schema.get("required", ())), **atomic(schema)}
    return made | {"type": schema.get("format") or kind}


def atomic(schema: Any) -> Tree:
    return {"atomic": True} if schema.get(f"{K8S}map-type") == "atomic" else {}


def list_of(schema: Any, path: str, read: Callable[[Any, str], Tree]) -> Tree:
    made = {"items": read(schema["items"], path)}
    if keys := schema.get(f"{K8S}list-map-keys"):
        made["keys"] = keys
    if schema.get(f"{K8S}list-type") == "set":
        made["set"] = True
    if "merge" in schema.get(f"{K8S}patch-strategy", ""):
        made["merge"] = schema.get(f"{K8S}patch-merge-key", "")
    return made


def name_types(tree: Tree, path: str, like: Tree, built_in: dict[str, Tree]) -> Iterator[str]:
    """Name the types in a custom kind, in place; yield the paths of types without a name.

    `like` is the tree of Kubernetes at the same place. It gets defaults, which only CustomResourceDefinitions publish.
    """
    tree |= {key: like[key] for key in ("merge", "retainKeys") if key in like}
    for part in {"items", "values"} & tree.keys():
        yield from name_types(tree[part], path, like.get(part, {}), built_in)
    if "fields" not in tree:
        return
    name = CRD_TYPES.get(path) or like.get("name") or (path if "." not in path else "")
    if not name:
        yield path
    tree["name"] = name
    like = built_in.get(name) or like
    for field, inner in tree["fields"].items():
        theirs = like.get("fields", {}).get(field, {})
        if theirs and "default" in inner and theirs.setdefault("default", inner["default"]) != inner["default"]:
            raise ValueError(f"{path}.{field} has another default than {name}.{field} elsewhere")
        if (name, field) in MERGE_KEYS:
            inner["merge"] = MERGE_KEYS[name, field]
        yield from name_types(inner, f"{path}.{field}", theirs, built_in)


class Types:
    """The types as they are written, each once, and the texts of their fields."""

    def __init__(self) -> None:
        self.types: dict[str, Any] = {}
        self.texts: dict[str, dict[str, str]] = {}

    def add(self, tree: Tree, *, custom: bool) -> Any:
        """Add the types in a tree; return the name of the tree's type or its keywords."""
        limits = {key: tree[key] for key in (*LIMITS, "rules", "retainKeys") if key in tree}
        for rule in limits.get("rules", ()):
            published_rule(rule)  # raises for a rule without a function
        if "items" in tree:
            within = self.add(tree["items"], custom=custom)
            more = {key: tree[key] for key in ("keys", "set", "merge") if key in tree}
            made = {"items": within, **more} if more or not isinstance(within, str) else f"[{within}]"
        elif "values" in tree:
            within = self.add(tree["values"], custom=custom)
            made = {"values": within, "atomic": True} if "atomic" in tree or not isinstance(within, str) else f"map<{within}>"
        elif "fields" in tree:
            made = self._struct(tree, custom=custom)
        else:
            made = tree["type"]
        if not limits:
            return made
        return {"type": made, **limits} if isinstance(made, str) else {**made, **limits}

    def _struct(self, tree: Tree, *, custom: bool) -> str:
        name = tree["name"]
        body = {"fields": {field: self.add(inner, custom=custom) for field, inner in tree["fields"].items()}}
        body |= {key: tree[key] for key in ("required", "atomic") if tree.get(key)}
        short = name.rpartition("/")[2]
        if short in WRITTEN:
            body["written"] = WRITTEN[short]
        if custom and self.types.get(name, body) != body:
            name = EMBEDDED + name
        if self.types.setdefault(name, body) != body:
            raise ValueError(f"{name} is the name of two types: name one of them otherwise in the overlay")
        texts = self.texts.setdefault(name.removeprefix(EMBEDDED), {})
        for field, inner in tree["fields"].items():
            text = first_sentences(inner.get("text", ""))
            if text and text != self.texts.get(short, {}).get(field):
                texts.setdefault(field, text)
        return name


def first_sentences(text: str) -> str:
    kept = ""
    for sentence in re.split(r"(?<=[.!])\s+(?=[A-Z\"])", " ".join(text.split()).partition("More info")[0].strip()):
        kept = f"{kept} {sentence}".strip()
        if len(kept) >= ENOUGH:
            break
    return kept[:MOST]


def published_types(kubernetes: Path, upstream: Path) -> Types:
    """Return all types of the kinds that the embedded cluster serves."""
    built_in, custom = read_kubernetes(kubernetes), read_definitions(upstream)
    if missing := [kind.kind for kind in (*BUILT_IN, *CUSTOM) if kind.kind not in built_in | custom]:
        raise ValueError(f"{', '.join(missing)}: not found in {kubernetes} and {upstream}")
    unnamed = [path for kind, tree in custom.items() for path in name_types(tree, kind, {}, built_in)]
    if unnamed:
        raise ValueError(f"types without a name in the overlay: {', '.join(unnamed)}")
    for (name, field), default in DEFAULTS.items():
        built_in[name]["fields"][field]["default"] = default
    found = Types()
    for tree in built_in.values():
        found.add(tree, custom=False)
    for kind, tree in custom.items():
        found.add(tree, custom=True)
        found.types[kind] |= {"rules": tree["rules"]} if "rules" in tree else {}
    return found


def types_text(types: dict[str, Any]) -> str:
    """JSON with a line for each field."""
    lines = []
    for name, body in sorted(types.items()):
        fields = ",\n".join(f"  {json.dumps(field)}: {compact(node)}" for field, node in body["fields"].items())
        more = "".join(f", {json.dumps(key)}: {compact(value)}" for key, value in body.items() if key != "fields")
        lines.append(f'{json.dumps(name)}: {{"fields": {{\n{fields}\n }}{more}}}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def descriptions_text(texts: dict[str, dict[str, str]]) -> str:
    return (
        json.dumps({name: of_type for name, of_type in texts.items() if of_type}, indent=1, ensure_ascii=False, sort_keys=True)
        + "\n"
    )


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    made = published_types(KUBERNETES, shared_path("upstream"))
    TYPES_FILE.write_text(types_text(made.types), "utf-8")
    DESCRIPTIONS_FILE.write_text(descriptions_text(made.texts), "utf-8")
    numbers = json.loads(shared_path("upstream/protobuf/fields.json").read_bytes())
    MESSAGES_FILE.write_text(messages_text(published_messages(numbers, definitions_of(KUBERNETES))), "utf-8")
