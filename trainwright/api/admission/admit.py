"""Admission: what an API server does with an object before it stores it: defaults, schema, rules, in this order.

The result is that of a cluster with all CRDs and webhooks; the error also carries the problems that later steps would find.
Rules that need the patched template of a TrainJob's runtime are with their policy in `materialize`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import orjson

from trainwright.api.admission.specs import ADMISSION_SPECS, AdmissionSpec
from trainwright.api.errors import BadRequest, Denied, Invalid, Problem, Undecodable
from trainwright.api.generated_names import with_sample_name
from trainwright.api.objects import Obj, name_of
from trainwright.api.rules.metadata import changed_metadata_problems, metadata_problems, metadata_warnings
from trainwright.api.rules.problems import AdmissionRequest, Lookup, violations
from trainwright.api.schema.check import Findings, findings
from trainwright.api.schema.decoding import decoding_problems
from trainwright.api.schema.defaulting import Unknown, apply_defaults, typed_nulls
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.round_trip import read_nulls, read_quantities
from trainwright.api.schema.types import Struct
from trainwright.text.suggest import suggest

__all__ = ["AdmissionContext", "Admitted", "Lookup", "admit", "check_readable", "governs"]


@dataclass(frozen=True)
class AdmissionContext:
    """What admission may use: the time (RFC 3339, empty without a clock), other objects, the strictness for unknown fields."""

    now: str = ""
    lookup: Lookup | None = None
    strictness: Literal["Strict", "Warn", "Ignore"] = "Strict"
    duplicates: tuple[str, ...] = ()
    """Paths of duplicate fields; reported like unknown fields."""
    only_status: bool = False
    """A write of the status subresource, which no webhook validates."""
    is_json: bool = False
    """The object consists of JSON values only, so it need not be copied first."""


@dataclass(frozen=True)
class Admitted:
    """The object with its defaults, and warnings for its author."""

    object: Obj
    warnings: list[str] = field(default_factory=list)


_DEFAULT_CONTEXT = AdmissionContext()


def governs(obj: Obj) -> bool:
    """Whether this package has a schema and rules for the object's kind."""
    return obj.get("kind") in ADMISSION_SPECS


def admit(obj: Obj, old: Obj | None = None, *, context: AdmissionContext = _DEFAULT_CONTEXT) -> Admitted:
    """Return the object as the API server would store it.

    `old` is the stored version on an update. For kinds without rules only the metadata is checked.
    Raises BadRequest for a value that is not an object with a kind, otherwise Invalid (or its subclasses Undecodable and
    Denied, as a server distinguishes them) with all problems.
    """
    kind = _kind_of(obj)
    admission_spec = ADMISSION_SPECS.get(kind)
    if admission_spec is not None and _is_about_status(admission_spec, obj, old, context):
        return _Admission(admission_spec, {"status": obj.get("status")}, old, context, is_about_status=True).run()
    try:
        data = orjson.dumps(obj)
    except TypeError as error:  # YAML values that JSON does not have: dates, binaries, integers over 64 bits
        raise BadRequest(f"the object holds a value that JSON does not have: {error}") from error
    own: Obj = obj if context.is_json and admission_spec is not None else orjson.loads(data)
    if admission_spec is not None:
        # Most objects have no nulls; skip the search.
        return _Admission(admission_spec, own, old, context, has_nulls=b"null" in data).run()
    if problems := list(metadata_problems(None, with_sample_name(own)["metadata"], custom=True)):
        raise Invalid.of(kind, name_of(obj), problems)
    return Admitted(own)


def check_readable(obj: Obj) -> None:
    """Raises Undecodable for an object of a built-in kind that cannot be decoded into its type, before any other check."""
    admission_spec = ADMISSION_SPECS.get(str(obj.get("kind")))
    if (
        admission_spec is not None
        and not admission_spec.custom
        and (found := decoding_problems(admission_spec.schema, obj, admission_spec.kind.kind))
    ):
        kind = admission_spec.kind
        raise Undecodable(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {found[0].message}')


def _kind_of(obj: Any) -> str:
    if not isinstance(obj, dict):
        raise BadRequest(f"expected an object, got {type(obj).__name__}")
    kind = obj.get("kind")
    if not isinstance(kind, str) or not kind:
        raise BadRequest("kind: Required value: an object must say its kind")
    if not isinstance(obj.get("metadata", {}), dict):
        raise BadRequest("metadata: must be an object")
    return kind


@dataclass
class _Admission:
    """The admission of one object; the first step that rejects it determines the server's error."""

    admission_spec: AdmissionSpec
    obj: Obj
    old: Obj | None
    context: AdmissionContext
    has_nulls: bool = True
    """False if the object certainly has none."""
    is_read: bool = True
    """Whether the object can be decoded; rules are checked only then."""
    is_about_status: bool = False
    """Whether nothing but the status changes: the rest was validated when it was written."""
    refusal: Invalid | None = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def run(self) -> Admitted:
        if not self.is_about_status:
            self._read_metadata()
        own = self._settle()
        found = self._default(own)
        self._judge(own, found)
        if self.is_read and not found.malformed and not self.context.only_status:
            self._ask_webhook(own)
            if not self.admission_spec.custom and self.admission_spec.warns is not None:
                self.warnings.extend(
                    self.admission_spec.warns(AdmissionRequest(with_sample_name(own), self.old, self.context.lookup))
                )
        if self.refusal is not None:
            self.refusal.problems = _distinct(self.problems)
            raise self.refusal
        if self.admission_spec.finish is not None:
            self.admission_spec.finish(own)
        return Admitted(own, self.warnings)

    def _refuse(self, refusal: Invalid, problems: list[Problem]) -> None:
        self.problems.extend(problems)
        self.refusal = self.refusal or refusal

    def _unreadable(self, why: str) -> Undecodable:
        kind = self.admission_spec.kind
        return Undecodable(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')

    def _read_metadata(self) -> None:
        """Check types of metadata; fields of a wrong type are removed, so that the rest can be validated."""
        metadata = self.obj.get("metadata") or {}
        problems = decoding_problems(struct_named("ObjectMeta"), metadata, "ObjectMeta")
        if problems:
            located = [Problem(f"metadata.{p.field}", p.message, p.reason) for p in problems]
            self._refuse(self._unreadable(problems[0].message), located)
            wrong = {p.field.partition(".")[0].partition("[")[0] for p in problems}
            self.obj = {**self.obj, "metadata": {key: value for key, value in metadata.items() if key not in wrong}}

    def _settle(self) -> Obj:
        if self.is_about_status and self.old is not None:
            return self._settle_status(self.old)
        given = (
            typed_nulls(self.admission_spec.schema, self.obj) if self.has_nulls and not self.admission_spec.custom else self.obj
        )
        own, unknown = apply_defaults(self.admission_spec.schema, given)
        metadata_schema = struct_named("ObjectMeta")
        metadata, strange = apply_defaults(metadata_schema, self.obj.get("metadata") or {}, "metadata")
        if self.has_nulls:
            read_nulls(metadata_schema, metadata)
            if not self.admission_spec.custom:
                read_nulls(self.admission_spec.schema, own)
        own["metadata"] = metadata
        if self.old is None and self.admission_spec.custom:  # a server drops the status of a new object
            own.pop("status", None)
        unknown += strange
        if self.admission_spec.custom:
            unknown.sort(key=lambda item: item[0])
        self._tell_unknown(unknown)
        return own

    def _tell_unknown(self, unknown: list[Unknown]) -> None:
        problems = [_duplicate_field(path) for path in self.context.duplicates]
        problems += [_unknown_field(item) for item in unknown]
        if problems and self.context.strictness == "Strict":
            reported = ", ".join(problem.message for problem in problems)
            self._refuse(self._unreadable(f"strict decoding error: {reported}"), problems)
        elif self.context.strictness == "Warn":
            self.warnings.extend(problem.message for problem in problems)

    def _settle_status(self, old: Obj) -> Obj:
        """The other fields were defaulted when they were written."""
        schema = _status_shape(self.admission_spec.kind.kind)
        given = {"status": self.obj["status"]} if "status" in self.obj else {}
        read, unknown = apply_defaults(schema, given if self.admission_spec.custom else typed_nulls(schema, given))
        if not self.admission_spec.custom:
            read_nulls(schema, read)
        own = {**old, "metadata": dict(old["metadata"]), **read}
        if "status" not in read:
            own.pop("status", None)
        self._tell_unknown(unknown)
        return own

    def _default(self, own: Obj) -> Findings:
        """Defaults outside the schema, set by code that decodes the object first."""
        found = self._findings(own)
        unreadable = []
        if self.context.only_status:
            found.schema_problems = [_in_status(problem) for problem in found.schema_problems]
            return found
        if found.schema_problems and self.admission_spec.is_read_by_code:
            unreadable = decoding_problems(self.admission_spec.schema, own, self.admission_spec.kind.kind)
        if unreadable:
            self.is_read = False
            self._refuse(self._told_by_defaulter(unreadable[0].message), [])
            known = {problem.field for problem in found.schema_problems}
            found.schema_problems.extend(problem for problem in unreadable if problem.field not in known)
        elif self.admission_spec.defaults is not None and not any(
            p.reason == "FieldValueTypeInvalid" for p in found.schema_problems
        ):
            if not self.admission_spec.custom:
                read_quantities(self.admission_spec.schema, own)
            self.admission_spec.defaults(own, self.old, self.context.now)
            if self.admission_spec.defaults_fill_required:
                found = self._findings(own)
        return found

    def _findings(self, own: Obj) -> Findings:
        if self.admission_spec.custom:
            return findings(self.admission_spec.schema, with_sample_name(own), self.old)
        # Built-in kinds have only types in their schema; required fields and bounds are in their rules.
        return Findings(decoding_problems(self.admission_spec.schema, own, self.admission_spec.kind.kind))

    def _told_by_defaulter(self, why: str) -> Undecodable:
        if not self.admission_spec.defaulter:
            return self._unreadable(why)
        refusal = Undecodable(f'admission webhook "{self.admission_spec.defaulter}" denied the request: {why}')
        refusal.reason = ""
        return refusal

    def _judge(self, own: Obj, found: Findings) -> None:
        named, kind = with_sample_name(own), self.admission_spec.kind
        find = metadata_problems if self.old is None or self.context.only_status else changed_metadata_problems
        problems = [] if self.is_about_status else list(find(kind, named["metadata"], custom=self.admission_spec.custom))
        if not self.context.now:  # without a server, owners have no UID yet
            problems = [problem for problem in problems if problem.field != "metadata.ownerReferences.uid"]
        if not self.admission_spec.custom and self.is_read and not found.malformed:
            rules = self.admission_spec.status_rules if self.context.only_status else self.admission_spec.rules
            problems += violations(rules, AdmissionRequest(named, self.old, self.context.lookup))
        if reported := problems + found.reported():
            self._refuse(Invalid.of(kind.kind, name_of(named), reported, kind.group), problems + found.all())

    def _ask_webhook(self, own: Obj) -> None:
        if not self.admission_spec.custom:
            return
        case = AdmissionRequest(with_sample_name(own), self.old, self.context.lookup)
        if problems := violations(self.admission_spec.rules, case):
            self._refuse(self._told_by_validator(case.new, problems), problems)
        if self.refusal is None:
            self.warnings.extend(metadata_warnings(own["metadata"]))
            self.warnings.extend(self.admission_spec.warns(case) if self.admission_spec.warns else ())

    def _told_by_validator(self, named: Obj, problems: list[Problem]) -> Invalid:
        denial = f'admission webhook "{self.admission_spec.validator}" denied the request: '
        kind = self.admission_spec.kind
        if self.admission_spec.validator_tells_fields:
            refusal = Invalid.of(kind.kind, name_of(named), problems, kind.group)
            refusal.message = denial + refusal.message
            return refusal
        reported = [str(problem) if problem.field else problem.message for problem in problems]
        return Denied(denial + (reported[0] if len(reported) == 1 else f"[{', '.join(reported)}]"))


@cache
def _status_shape(kind: str) -> Struct:
    return Struct({"status": ADMISSION_SPECS[kind].schema.fields["status"]})


def _is_about_status(admission_spec: AdmissionSpec, new: Obj, old: Obj | None, context: AdmissionContext) -> bool:
    """Whether the write is of the status alone, and nothing else differs."""
    if old is None or not context.only_status or "status" not in admission_spec.schema.fields:
        return False
    return all(new.get(key) == old.get(key) for key in (new.keys() | old.keys()) - {"status"})


def _in_status(problem: Problem) -> Problem:
    """A problem of a status write: with the full field path, without the position in the body."""
    return replace(problem, message=problem.message.replace(": status.", ": "))


def _unknown_field(unknown: Unknown) -> Problem:
    path, allowed = unknown
    name = path.rpartition(".")[2]
    return Problem(path, f'unknown field "{path}"', "FieldUnknown", hint=suggest(name, allowed))


def _duplicate_field(path: str) -> Problem:
    return Problem(path, f'duplicate field "{path}"', "FieldDuplicate")


def _distinct(problems: list[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))
