"""`trainwright validate`: reports every problem of the objects in manifests, with file and line, without a cluster.

The file is deliberately parsed twice: objects come from the usual reader, and lines are only collected to report problems.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

import typer

from trainwright.api.admission.admit import AdmissionContext, Lookup, admit
from trainwright.api.documents import load_documents
from trainwright.api.errors import ApiError, BadRequest, Invalid, Problem
from trainwright.api.generated_names import with_sample_name
from trainwright.api.objects import Obj, described, name_of, namespace_of
from trainwright.api.paths import child, element
from trainwright.api.schema.check import ROOT
from trainwright.api.unknown_kinds import is_known, kind_problem
from trainwright.cli.errors import BAD_INPUT, WarningPrinter, bad_input_exits, fail
from trainwright.cli.manifests import read_text
from trainwright.cli.materialize import materialize_trainjob, print_upgrade_hints
from trainwright.cli.output import json_text
from trainwright.jobs.credentials.secret_detection import manifest_problems
from trainwright.migration import KINDS, is_legacy
from trainwright.runtimes import bundled_runtimes
from trainwright.text.foreign_texts import one_line
from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_reader import YamlDocument, read_yaml_documents

Files = Annotated[
    list[str], typer.Option("-f", "--filename", metavar="FILE", help="Manifest file, - for standard input; repeatable.")
]
Output = Annotated[Literal["text", "json"], typer.Option("-o", "--output", help="Text lines, or one JSON document.")]
_MOST = 200_000
"""Maximum number of fields, because aliases repeat fields."""
_TAIL = re.compile(r"(\.[^.\[\]]+|\[[^\]]*\])\Z")


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    file: str
    line: int
    path: str
    reason: str
    message: str
    object: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return one_line(f"{self.file}:{self.line}: {self.path}: {self.reason}: {self.message}{hint}")


@dataclass(frozen=True)
class _Document:
    file: str
    obj: Obj
    where: SourceMap


def register(app: typer.Typer) -> None:
    app.command("validate")(validate_command)


def validate_command(filename: Files, output: Output = "text") -> None:
    """Validate manifests with the rules of a cluster, and by building their JobSets; exit code 2 if there are problems.

    Problems are printed on standard output, warnings on standard error; with -o json both are in the document.
    Runtimes are looked up among the given documents, then among the bundled runtimes. A file without objects is an error. Of an
    object whose kind Trainwright does not know, only the metadata is checked, with a warning; if no other object is given, that
    is an error.
    """
    with bad_input_exits():
        documents = [document for file in filename for document in _read(file)]
    problems, warnings = report(documents)
    if output == "json":
        listed = {"problems": [asdict(p) for p in problems], "warnings": [asdict(w) for w in warnings]}
        sys.stdout.write(json_text(listed))
    else:
        for finding in problems:
            print(finding)
        printer = WarningPrinter()
        for finding in warnings:
            printer.print(str(finding))
        if not problems:
            print(f"{len(documents)} object{'' if len(documents) == 1 else 's'}, no problems found")
    if problems:
        print_upgrade_hints(document.obj for document in documents)
        raise typer.Exit(BAD_INPUT)
    if not any(is_known(document.obj) for document in documents):
        fail("nothing was validated: no object is of a kind that Trainwright knows", BAD_INPUT)


def _read(file: str) -> list[_Document]:
    text = read_text(file)
    objects = load_documents(text, file)
    if not objects:
        raise BadRequest(f"{file}: contains no objects")
    positions = source_maps(text)
    unknown = SourceMap({}, 1)
    return [_Document(file, obj, positions[i] if i < len(positions) else unknown) for i, obj in enumerate(objects)]


def report(documents: list[_Document]) -> tuple[list[Finding], list[Finding]]:
    """Return the problems and the warnings of all documents, sorted by line."""
    problems: list[Finding] = []
    warnings: list[Finding] = []
    admitted: list[Obj] = []
    given = {(str(document.obj.get("kind")), _name(document.obj)) for document in documents}
    for document in documents:
        found, document_warnings = _check(document, admitted, given)
        problems.extend(_finding(document, problem) for problem in found)
        warnings.extend(_finding(document, warning) for warning in document_warnings)
    positions = {document.file: position for position, document in enumerate(reversed(documents))}
    for findings in (problems, warnings):
        findings.sort(key=lambda finding: (-positions[finding.file], finding.line))
    return problems, warnings


def _check(document: _Document, admitted: list[Obj], given: set[tuple[Any, Any]]) -> tuple[list[Problem], list[Problem]]:
    """Return the problems and warnings of one object; a valid one is added to `admitted`. `given` are kinds and names of all."""
    obj = _with_namespace(document.obj)
    if (str(obj.get("apiVersion")), str(obj.get("kind"))) in KINDS:
        return [
            Problem("kind", f"Unsupported value: {obj['kind']} is a kind of the training operator", "FieldValueNotSupported")
        ], []
    lookup: Lookup | None = _lookup(admitted)
    warnings: list[Problem] = [replace(problem, reason="LiteralSecret") for problem in manifest_problems(obj)]
    unknown = None if is_legacy(obj) else kind_problem(obj)
    if unknown is None and not is_known(obj) and not is_legacy(obj):
        text = f"Trainwright does not know {obj.get('kind')} in {obj.get('apiVersion')}: only its metadata was checked"
        warnings.append(Problem("kind", text, "Unchecked"))
    reference = _runtime_of(obj)
    if reference and lookup is not None and lookup(*reference) is None:
        lookup = None
        if (reference[0], reference[2]) not in given:
            text = f"{reference[0]} {reference[2]} is neither among the manifests nor bundled: dependent fields were not checked"
            warnings.append(Problem("spec.runtimeRef.name", text, "Unchecked"))
    try:
        answer = admit(obj, context=AdmissionContext(lookup=lookup))
    except ApiError as error:
        if unknown is None:
            return _problems(error), warnings
        own_fields = unknown.reason == "FieldValueNotSupported"  # of another kind or version
        return ([unknown] if own_fields else [unknown, *_problems(error)]), warnings
    if unknown is not None:
        return [unknown], warnings
    admitted.append(answer.object)
    warnings += [Problem("", text, "Warning") for text in answer.warnings]
    if answer.object["kind"] != "TrainJob" or lookup is None:
        return [], warnings
    try:
        objects = materialize_trainjob(with_sample_name(answer.object), admitted)
    except ApiError as error:
        return _problems(error), warnings
    return [], warnings + [problem for built in objects for problem in _job_template_problems(built)]


def _problems(error: ApiError) -> list[Problem]:
    if isinstance(error, Invalid) and error.problems:
        return error.problems
    return [Problem("", error.message, error.reason)]


def _job_template_problems(built: Obj) -> list[Problem]:
    """Return problems of a JobSet that a cluster accepts, but from which it cannot create Jobs."""
    found = []
    for job in (built["spec"].get("replicatedJobs") or []) if built["kind"] == "JobSet" else []:
        spec = admit(built).object["spec"]
        template = next(j["template"]["spec"] for j in spec["replicatedJobs"] if j["name"] == job["name"])
        try:
            admit({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": template})
        except Invalid as error:
            found += [
                Problem("", f"no Job can be created for the step {job['name']}: {problem}", "JobRejected")
                for problem in error.problems
            ]
    return found


def _runtime_of(obj: Obj) -> tuple[str, str, str] | None:
    """Return kind, namespace and name of the runtime that a TrainJob references; None if the reference is invalid."""
    spec = obj.get("spec")
    reference = spec.get("runtimeRef") if isinstance(spec, dict) else None
    if obj.get("kind") != "TrainJob" or not isinstance(reference, dict) or not isinstance(reference.get("name"), str):
        return None
    kind = reference.get("kind") or "ClusterTrainingRuntime"
    if kind not in ("TrainingRuntime", "ClusterTrainingRuntime") or not reference["name"]:
        return None
    return kind, namespace_of(obj) if kind == "TrainingRuntime" else "", reference["name"]


def _name(obj: Obj) -> Any:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else None


def _with_namespace(obj: Obj) -> Obj:
    """Return the object with its default namespace."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or obj.get("kind") == "ClusterTrainingRuntime" or metadata.get("namespace"):
        return obj
    return {**obj, "metadata": {**metadata, "namespace": "default"}}


def _lookup(admitted: list[Obj]) -> Lookup:
    """Return a lookup in the same manifests, then in the bundled runtimes."""

    def lookup(kind: str, namespace: str, name: str) -> Obj | None:
        for obj in [*admitted, *bundled_runtimes()]:
            here = kind == "ClusterTrainingRuntime" or namespace_of(obj) == namespace
            if here and obj["kind"] == kind and name_of(obj) == name:
                return obj
        return None

    return lookup


def _finding(document: _Document, problem: Problem) -> Finding:
    path = "" if problem.where == ROOT else problem.where
    return Finding(
        document.file,
        document.where.line(path),
        path or "(object)",
        problem.reason,
        problem.message,
        described(document.obj) if isinstance(document.obj.get("metadata"), dict) else str(document.obj.get("kind", "object")),
        problem.hint,
    )


class SourceMap:
    """The lines of the fields of one object."""

    def __init__(self, lines: dict[str, int], first: int) -> None:
        self._lines = lines
        self.first = first

    def line(self, path: str) -> int:
        """Return the line of a field, or of its closest parent in the file."""
        while path:
            found = self._lines.get(path)
            if found is not None:
                return found
            shorter = _TAIL.sub("", path)
            path = "" if shorter == path else shorter
        return self.first


def source_maps(text: str | bytes) -> list[SourceMap]:
    """One source map for each object of the text, in the order of `load_documents`; none for JSON that is not also YAML."""
    try:
        documents = read_yaml_documents(text, with_lines=True)
    except Unreadable:
        return []
    return [found for document in documents if document.value is not None for found in _maps(document)]


def _maps(document: YamlDocument) -> Iterator[SourceMap]:
    """The map of a document, or those of the items of a List."""
    value = document.value
    if not isinstance(value, dict) or value.get("kind") != "List":
        yield _map_of(document, value, document.line)
        return
    items = value.get("items")
    for index, item in enumerate(items if isinstance(items, list) else []):
        yield _map_of(document, item, document.lines[id(items)][index])


def _map_of(document: YamlDocument, value: Any, first: int) -> SourceMap:
    lines: dict[str, int] = {}
    _walk(document, value, "", lines)
    return SourceMap(lines, first)


def _walk(document: YamlDocument, value: Any, path: str, lines: dict[str, int]) -> None:
    if not isinstance(value, dict | list) or len(lines) > _MOST:
        return
    own = document.lines[id(value)]
    for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
        inner = element(path, key) if isinstance(key, int) else child(path, key)
        lines[inner] = own.get(key, document.line)
        _walk(document, entry, inner, lines)
