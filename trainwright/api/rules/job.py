"""Validation of a Job (batch/v1) by the API server: counts, modes, compatible policies, immutable fields.

In its status counters never decrease, and a Job ends once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.errors import Problem
from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, labels_of, name_of, uid_of
from trainwright.api.rules.metadata import labelling_problems
from trainwright.api.rules.pod import pod_spec_problems
from trainwright.api.rules.problems import AdmissionRequest, WebhookRule, not_negative, required
from trainwright.api.schema.check import as_json, quoted
from trainwright.api.schema.serialised import serialised

MAX_INT32 = 2**31 - 1
_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_POD = "spec.template.spec"
_MUTABLE_WHILE_SUSPENDED = ("nodeSelector", "tolerations", "schedulingGates", "affinity")
_COUNTERS = ("active", "ready", "succeeded", "failed", "terminating")
_KEPT = ("succeeded", "failed")
_CONDITIONS = "status.conditions"
_BEFORE = (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet"))
"""The condition that must precede each final condition."""
_APART = (("FailureTarget", "Complete"), ("SuccessCriteriaMet", "Failed"))


def _spec(case: AdmissionRequest) -> Obj:
    return case.new.get("spec") or {}


def _unsupported(where: str, value: Any, allowed: tuple[str, ...]) -> Problem:
    message = f"Unsupported value: {as_json(value)}: supported values: {quoted(allowed)}"
    return Problem(where, message, "FieldValueNotSupported")


def _counts(case: AdmissionRequest) -> Iterator[Problem]:
    spec = _spec(case)
    for name in (*_COUNTS, "backoffLimitPerIndex", "maxFailedIndexes"):
        yield from not_negative(spec.get(name), f"spec.{name}")


def _modes(case: AdmissionRequest) -> Iterator[Problem]:
    spec = _spec(case)
    mode, where = spec.get("completionMode"), "spec.completionMode"
    if mode not in ("NonIndexed", "Indexed"):
        yield _unsupported(where, mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed" and spec.get("completions") is None:
        yield Problem("spec.completions", "Required value: when completion mode is Indexed", "FieldValueRequired")
    if mode != "Indexed" and spec.get("backoffLimitPerIndex") is not None:
        shown = as_json(spec["backoffLimitPerIndex"])
        yield Problem("spec.backoffLimitPerIndex", f"Invalid value: {shown}: requires indexed completion mode")
    failed = spec.get("maxFailedIndexes")
    if failed is not None and spec.get("backoffLimitPerIndex") is None:
        message = "Required value: when maxFailedIndexes is specified"
        yield Problem("spec.backoffLimitPerIndex", message, "FieldValueRequired")
    if failed is not None and spec.get("completions") is not None and failed > spec["completions"]:
        yield Problem("spec.maxFailedIndexes", f"Invalid value: {failed}: must be less than or equal to completions")


def _replacement(case: AdmissionRequest) -> Iterator[Problem]:
    spec = _spec(case)
    allowed = ("Failed",) if spec.get("podFailurePolicy") else ("Failed", "TerminatingOrFailed")
    if spec.get("podReplacementPolicy") not in allowed:
        yield _unsupported("spec.podReplacementPolicy", spec.get("podReplacementPolicy"), allowed)


def _manager(case: AdmissionRequest) -> Iterator[Problem]:
    manager = _spec(case).get("managedBy")
    if manager is None:
        return
    host, slash, path = manager.partition("/")
    if not (host and slash and path):
        yield Problem(
            "spec.managedBy", f'Invalid value: {as_json(manager)}: must be a domain-prefixed path (such as "acme.io/foo")'
        )
    if len(manager) > 63:
        yield Problem("spec.managedBy", "Too long: may not be more than 63 bytes", "FieldValueTooLong")


def _pod_failure_policy(case: AdmissionRequest) -> Iterator[Problem]:
    policy = _spec(case).get("podFailurePolicy")
    pod = (_spec(case).get("template") or {}).get("spec") or {}
    known = {c.get("name") for group in ("containers", "initContainers") for c in pod.get(group) or []}
    for index, rule in enumerate((policy or {}).get("rules") or []):
        where = f"spec.podFailurePolicy.rules[{index}]"
        if rule.get("action") not in ("Count", "FailIndex", "FailJob", "Ignore"):
            yield _unsupported(f"{where}.action", rule.get("action", ""), ("Count", "FailIndex", "FailJob", "Ignore"))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes and conditions:
            yield Problem(where, "Invalid value: specifying both OnExitCodes and OnPodConditions is not supported")
        if not codes and not conditions:
            yield Problem(where, "Invalid value: specifying one of OnExitCodes and OnPodConditions is required")
        if codes:
            yield from _exit_codes(codes, f"{where}.onExitCodes", known)


def _exit_codes(codes: Obj, where: str, known: set[Any]) -> Iterator[Problem]:
    if codes.get("operator") not in ("In", "NotIn"):
        yield _unsupported(f"{where}.operator", codes.get("operator", ""), ("In", "NotIn"))
    name, values = codes.get("containerName"), codes.get("values") or []
    if name is not None and name not in known:
        message = "must be one of the container or initContainer names in the pod template"
        yield Problem(f"{where}.containerName", f"Invalid value: {as_json(name)}: {message}")
    if not values:
        yield Problem(f"{where}.values", "Invalid value: []: at least one value is required")
    for index, value in enumerate(values):
        if value == 0 and codes.get("operator") == "In":
            yield Problem(f"{where}.values[{index}]", "Invalid value: 0: must not be 0 for the In operator")
        if value in values[:index]:
            yield Problem(f"{where}.values[{index}]", f"Duplicate value: {value}", "FieldValueDuplicate")
    if values != sorted(values):
        yield Problem(f"{where}.values", f"Invalid value: {as_json(values)}: must be ordered")


def _success_policy(case: AdmissionRequest) -> Iterator[Problem]:
    spec, policy = _spec(case), _spec(case).get("successPolicy")
    if policy is None:
        return
    if spec.get("completionMode") != "Indexed":
        yield Problem("spec.successPolicy", f"Invalid value: {serialised(policy)}: requires indexed completion mode")
        return
    where = "spec.successPolicy.rules"
    if not policy.get("rules"):
        message = "Required value: at least one rules must be specified when the successPolicy is specified"
        yield Problem(where, message, "FieldValueRequired")
    for index, rule in enumerate(policy.get("rules") or []):
        count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            message = "Required value: at least one of succeededCount or succeededIndexes must be specified"
            yield Problem(f"{where}[{index}]", message, "FieldValueRequired")
        if indexes is not None and (fault := _indexes_fault(indexes, spec.get("completions") or 0)):
            message = f"Invalid value: {as_json(indexes)}: error parsing succeededIndexes: {fault}"
            yield Problem(f"{where}[{index}].succeededIndexes", message)


def _indexes_fault(text: str, completions: int) -> str:
    """Returns the error in a list of indexes such as `1,3-5`, or an empty string."""
    previous = -1
    for part in text.split(",") if text else []:
        ends = [end for text in part.split("-") if (end := parse_count(text)) is not None]
        if len(ends) > 2 or len(ends) <= part.count("-"):
            return f'cannot convert string to integer for index: "{part}"'
        for end in ends:
            if end >= completions:
                return f'too large index: "{end}"'
            if end <= previous:
                return f"non-increasing order, previous: {previous}, current: {end}"
            previous = end
    return ""


def _template(case: AdmissionRequest) -> Iterator[Problem]:
    spec = _spec(case)
    pod = (spec.get("template") or {}).get("spec") or {}
    yield from pod_spec_problems(pod, _POD)
    policy, where = pod.get("restartPolicy"), f"{_POD}.restartPolicy"
    if policy in (None, "", "Always"):
        yield Problem(where, 'Required value: valid values: "OnFailure", "Never"', "FieldValueRequired")
    elif policy not in ("OnFailure", "Never"):
        yield _unsupported(where, policy, ("OnFailure", "Never"))
    if spec.get("podFailurePolicy") and policy != "Never":
        yield Problem(where, f'Invalid value: {as_json(policy)}: only "Never" is supported when podFailurePolicy is specified')


def _labels(case: AdmissionRequest) -> Iterator[Problem]:
    """The labels that the server adds to pods must be valid, and the selector must match them."""
    spec = _spec(case)
    template = spec.get("template") or {}
    has = labels_of(template)
    for problem in labelling_problems(template.get("metadata") or {}, "spec.template"):
        of_name = problem.message.startswith(f"Invalid value: {as_json(name_of(case.new))}: ")
        field = problem.field.replace("spec.template.", "spec.template.metadata.")
        yield replace(problem, at="metadata.name" if of_name else field)
    if uid_of(case.new) and "selector" not in spec:
        yield Problem("spec.selector", "Required value", "FieldValueRequired")
    if not _finds(spec.get("selector"), has) or (uid_of(case.new) and "selector" not in spec):
        message = f"Invalid value: {as_json(has or None)}: `selector` does not match template `labels`"
        yield Problem("spec.template.metadata.labels", message)


def _finds(selector: Any, labels: dict[str, str]) -> bool:
    wanted = (selector or {}).get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


def _selector(case: AdmissionRequest) -> Iterator[Problem]:
    """A user-defined selector requires `manualSelector`."""
    spec = _spec(case)
    own = {names.CONTROLLER_UID_LABEL: uid_of(case.new), names.JOB_NAME_LABEL: name_of(case.new)}
    if uid_of(case.new) and not spec.get("manualSelector") and not _finds(spec.get("selector"), own):
        yield Problem("spec.selector", f"Invalid value: {serialised(spec['selector'])}: `selector` not auto-generated")


def _changes(case: AdmissionRequest) -> Iterator[Problem]:
    if case.old is None:
        return
    old, new = case.old.get("spec") or {}, _spec(case)
    elastic = old.get("completionMode") == "Indexed" and new.get("completions") == new.get("parallelism")
    for name in (
        "completions",
        "selector",
        "completionMode",
        "podFailurePolicy",
        "successPolicy",
        "backoffLimitPerIndex",
        "managedBy",
    ):
        if old.get(name) == new.get(name) or (name == "completions" and elastic):
            continue
        shown = serialised(new[name]) if name in new else "null"
        yield Problem(f"spec.{name}", f"Invalid value: {shown}: field is immutable")
    before, after = old.get("template") or {}, new.get("template") or {}
    started = not old.get("suspend") or (case.old.get("status") or {}).get("startTime")
    if started and before != after:
        # A server quotes the template in its own form: metadata first, without the field name.
        quoted = {**(after.get("metadata") or {}), "Spec": after.get("spec")}
        yield Problem("spec.template", f"Invalid value: {serialised(quoted)}: field is immutable")
    elif _fixed(before) != _fixed(after):
        yield Problem("spec.template.spec", f"Invalid value: {serialised(after.get('spec'))}: field is immutable")


def _fixed(template: Obj) -> Obj:
    """The template without the fields that are mutable while its Job is suspended and not started, container resources among them."""
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if key not in ("labels", "annotations")}
    pod = {key: value for key, value in (template.get("spec") or {}).items() if key not in _MUTABLE_WHILE_SUSPENDED}
    for part in ("containers", "initContainers"):
        if part in pod:
            pod[part] = [{key: value for key, value in entry.items() if key != "resources"} for entry in pod[part] or []]
    return {"metadata": metadata, "spec": pod}


_SPEC_RULES = (
    WebhookRule("spec", "non-negative counts", _counts),
    WebhookRule("spec.completionMode", "a known mode with its required fields", _modes),
    WebhookRule("spec.managedBy", "a domain-prefixed path", _manager),
    WebhookRule("spec.podFailurePolicy", "rules with either exit codes or conditions", _pod_failure_policy),
    WebhookRule("spec.podReplacementPolicy", "compatible with podFailurePolicy", _replacement),
    WebhookRule("spec.successPolicy", "rules with existing indexes", _success_policy),
    WebhookRule("spec.template.metadata.labels", "labels that match the selector", _labels),
    WebhookRule(_POD, "a valid pod spec with a suitable restartPolicy", _template),
)


def _once_more(case: AdmissionRequest) -> Iterator[Problem]:
    """An update is validated as an object and as a change; problems of the object are reported for both."""
    for rule in _SPEC_RULES if case.old is not None else ():
        yield from rule.breaches(case)


JOB_RULES = (
    WebhookRule("spec.selector", "generated, unless `manualSelector` is set", _selector),
    *_SPEC_RULES,
    WebhookRule("spec", "the same, reported again on update", _once_more),
    WebhookRule("spec", "immutable, except for mutable fields such as parallelism", _changes),
)


def _status(obj: Obj | None) -> dict[str, Any]:
    return (obj or {}).get("status") or {}


def _counters(case: AdmissionRequest) -> Iterator[Problem]:
    for name in _COUNTERS:
        yield from not_negative(_status(case.new).get(name), f"status.{name}")


def _one_end(case: AdmissionRequest) -> Iterator[Problem]:
    if _said(case):
        yield from _both(case.new, "Complete", "Failed")


def _time_of_completion(case: AdmissionRequest) -> Iterator[Problem]:
    complete, completed = is_true(case.new, "Complete"), _status(case.new).get("completionTime")
    if complete and not completed:
        yield required("status.completionTime", "completionTime is required for Complete jobs")
    if completed and not complete:
        yield Problem("status.completionTime", "Invalid value: completionTime cannot be set for non-complete jobs")


def _announced(case: AdmissionRequest) -> Iterator[Problem]:
    if not _said(case):
        return
    for end, before in _BEFORE:
        if is_true(case.new, end) and not is_true(case.new, before):
            yield Problem(_CONDITIONS, f"Invalid value: cannot set {end}=True condition without the {before}=true condition")
    for one, other in _APART:
        yield from _both(case.new, one, other)


def _said(case: AdmissionRequest) -> bool:
    """Whether the conditions have changed: unchanged ones are not validated again."""
    return bool(_status(case.new).get("conditions") != _status(case.old).get("conditions"))


def _both(job: Obj, one: str, other: str) -> Iterator[Problem]:
    if is_true(job, one) and is_true(job, other):
        yield Problem(_CONDITIONS, f"Invalid value: cannot set {one}=True and {other}=true conditions")


def _at_rest(case: AdmissionRequest) -> Iterator[Problem]:
    active = _status(case.new).get("active") or 0
    if active > 0 and (is_true(case.new, "Complete") or is_true(case.new, "Failed")):
        yield Problem("status.active", f"Invalid value: {active}: active>0 is invalid for finished job")


def _forward(case: AdmissionRequest) -> Iterator[Problem]:
    status, before = _status(case.new), _status(case.old)
    for name in _KEPT:
        count = status.get(name) or 0
        if count < (before.get(name) or 0):
            yield Problem(f"status.{name}", f"Invalid value: {count}: cannot decrease the {name} counter")


JOB_STATUS_RULES = (
    WebhookRule("status", "non-negative counters", _counters),
    WebhookRule(_CONDITIONS, "Complete or Failed, not both", _one_end),
    WebhookRule("status.completionTime", "set if and only if the Job is complete", _time_of_completion),
    WebhookRule(_CONDITIONS, "SuccessCriteriaMet or FailureTarget before the final condition", _announced),
    WebhookRule("status.active", "no active pods once the Job has ended", _at_rest),
    WebhookRule("status", "counters never decrease", _forward),
)
