"""A compiled pipeline: its name, its parameters and its text, whose digest names its version on a server. Pure."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.errors import BadPipeline
from trainwright.pipeline_runs.parameters import ParameterSpec, parameter_specs
from trainwright.text.foreign_texts import printable
from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_reader import read_yaml
from trainwright.text.yaml_writer import to_yaml_documents

_NEEDED = ("pipelineInfo", "root", "deploymentSpec", "schemaVersion")


@dataclass(frozen=True)
class CompiledPipeline:
    """The documents of a compiled pipeline: its specification and, where it has Kubernetes settings, those of the platform."""

    documents: tuple[Obj, ...]
    header: str = ""
    """Comments at the top of the file: what kfp says of inputs and outputs."""

    @classmethod
    def parse(cls, text: str, source: str) -> CompiledPipeline:
        """Read the YAML of a compiler. Raises BadPipeline naming the source for anything that is not a pipeline."""
        try:
            documents = [document for document in read_yaml(text, source) if document is not None]
        except Unreadable as error:
            raise BadPipeline(str(error)) from None
        if not 1 <= len(documents) <= 2 or not all(isinstance(document, dict) for document in documents):
            raise BadPipeline(f"{source}: not a compiled pipeline: expected its specification, and at most one of the platform")
        if missing := [key for key in _NEEDED if not documents[0].get(key)]:
            raise BadPipeline(f"{source}: not a compiled pipeline: {', '.join(missing)} is missing")
        header = "".join(printable(line) for line in takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))
        compiled = cls(tuple(documents), header)
        try:
            _restore_integers(documents[0])
            _ = compiled.name, compiled.parameters
            list(compiled.tasks())
        except (AttributeError, KeyError, TypeError):  # text or lists where the format has objects
            raise BadPipeline(f"{source}: not a compiled pipeline: its specification is malformed") from None
        return compiled

    @property
    def name(self) -> str:
        return str(self.documents[0]["pipelineInfo"]["name"])

    @property
    def description(self) -> str:
        return str(self.documents[0]["pipelineInfo"].get("description", ""))

    @functools.cached_property
    def parameters(self) -> dict[str, ParameterSpec]:
        """The parameters of a run, by name."""
        return parameter_specs(self.documents[0]["root"].get("inputDefinitions", {}))

    @property
    def text(self) -> str:
        """The YAML. Unlike kfp's own, every text in it is one for readers of YAML 1.2, too: kfp leaves `2e-4` without quotes."""
        return self.header + to_yaml_documents(self.documents, sort_keys=True)

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def submitted_spec(self) -> Obj:
        """What a run carries if it refers to no uploaded version."""
        if len(self.documents) == 1:
            return self.documents[0]
        return {"pipeline_spec": self.documents[0], "platform_spec": self.documents[1]}

    def tasks(self) -> Iterator[tuple[Obj, str, Obj]]:
        """Yield each task, at any depth, after the component that it is in and its name."""
        spec = self.documents[0]
        for component in (spec["root"], *spec.get("components", {}).values()):
            for name, task in component.get("dag", {}).get("tasks", {}).items():
                yield component, name, task

    def component_of(self, task: Obj) -> Obj:
        """Return the component of a task; empty if it is missing."""
        found: Obj = self.documents[0].get("components", {}).get(task["componentRef"]["name"], {})
        return found

    def executors(self) -> Iterator[tuple[str, Obj]]:
        """Yield the container of each executor, with its name; others have none."""
        for name, executor in self.documents[0]["deploymentSpec"].get("executors", {}).items():
            yield name, executor.get("container", {})

    @functools.cached_property
    def groups(self) -> frozenset[str]:
        """The names of what consists of tasks: nested pipelines, conditions, loops and exit handlers."""
        return frozenset(name for _, name, task in self.tasks() if "dag" in self.component_of(task))

    def without_cache(self) -> CompiledPipeline:
        """Return the pipeline with caching off for every task, at any depth: kfp itself only changes the outermost."""
        found = replace(self, documents=copy.deepcopy(self.documents))
        for _, _, task in found.tasks():
            task["cachingOptions"] = {"enableCache": False}
        return found


def _restore_integers(spec: Obj) -> None:
    """Write defaults of integers as integers: kfp's compiler writes 3.0, which forms then show."""
    for component in (spec["root"], *spec.get("components", {}).values()):
        for declared in component.get("inputDefinitions", {}).get("parameters", {}).values():
            default = declared.get("defaultValue")
            if declared["parameterType"] == "NUMBER_INTEGER" and isinstance(default, float) and default.is_integer():
                declared["defaultValue"] = int(default)
