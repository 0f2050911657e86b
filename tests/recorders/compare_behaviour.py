#!/usr/bin/env python3
"""Compare observed.yaml files of two runs of the same scenarios.

usage: compare_behaviour.py [--skip events,messages,causes,tracked] [--strict] EXPECTED ACTUAL
EXPECTED and ACTUAL are two observed.yaml files or two folders holding <case>/observed.yaml.
Exit status 0: no difference that counts. See README.md for what counts.
"""

import argparse
import json
import os
import sys

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def flatten(value, path, out):
    """Nested value -> {path: leaf}; conditions by type, other named lists by name, the rest by position."""
    if isinstance(value, dict):
        for k, v in value.items():
            flatten(v, path + "." + str(k), out)
        if not value:
            out[path] = "{}"
    elif isinstance(value, list):
        key = next(
            (
                k
                for k in ("type", "name")
                if value and all(isinstance(i, dict) and k in i for i in value) and len({i[k] for i in value}) == len(value)
            ),
            None,
        )
        for n, item in enumerate(value):
            flatten(item, f"{path}[{item[key] if key else n}]", out)
        if not value:
            out[path] = "[]"
    else:
        out[path] = value
    return out


def clean(value, skip):
    """Drop what the options exclude."""
    if isinstance(value, dict):
        return {
            k: clean(v, skip)
            for k, v in value.items()
            if not (k == "message" and "messages" in skip) and not (k == "tracked" and "tracked" in skip)
        }
    if isinstance(value, list):
        return [clean(v, skip) for v in value]
    return value


def canonical(items):
    return sorted(json.dumps(i, sort_keys=True, default=str) for i in items)


def diff(label, expected, actual):
    a, b = flatten(expected, "", {}), flatten(actual, "", {})
    return [
        "{}{}: expected {!r}, got {!r}".format(label, k, a.get(k, "(absent)"), b.get(k, "(absent)"))
        for k in sorted(set(a) | set(b))
        if a.get(k, "(absent)") != b.get(k, "(absent)")
    ]


def diff_sets(label, expected, actual):
    a, b = canonical(expected), canonical(actual)
    out = []
    for item in sorted(set(a) | set(b)):
        if a.count(item) != b.count(item):
            out.append("%s: %s expected %d times, got %d" % (label, item, a.count(item), b.count(item)))
    return out


def results(doc, strict):
    """Refusals count by code, reason and causes; the words of a refusal only with --strict."""
    out = {}
    for n, r in enumerate(doc["results"]):
        entry = {k: r[k] for k in ("do", "code", "reason", "matched") if k in r}
        if strict and "message" in r:
            entry["message"] = r["message"]
        entry["causes"] = sorted("{} {}".format(c["reason"], c["field"]) for c in r.get("causes", []))
        out["%s.%d" % (r["step"], n)] = entry
    return out


def compare(expected, actual, skip=(), strict=False):
    found = diff("results.", results(expected, strict), results(actual, strict))
    if "causes" in skip:
        found = [f for f in found if ".causes" not in f]
    left = {o["after"]: o for o in expected["observations"]}
    right = {o["after"]: o for o in actual["observations"]}
    for after in list(left) + [a for a in right if a not in left]:
        a, b = clean(left.get(after, {}), skip), clean(right.get(after, {}), skip)
        label = f"after {after}: "
        found += diff_sets(label + "pods", a.pop("pods", []), b.pop("pods", []))
        a.pop("newEvents", None), b.pop("newEvents", None)
        if strict:  # the order of conditions too

            def order(o):
                return {
                    f"{k}/{n}": [c["type"] for c in x.get("conditions", [])]
                    for k in ("trainjobs", "jobsets", "jobs")
                    for n, x in o.get(k, {}).items()
                }

            found += diff(label + "order", order(a), order(b))
        found += diff(label, a, b)
    if "events" not in skip:  # as one set for the whole scenario: an event may be written a moment later
        events = [
            {json.dumps(e, sort_keys=True) for o in d["observations"] for e in clean(o.get("newEvents", []), skip)}
            for d in (expected, actual)
        ]
        found += [f"events: missing {e}" for e in sorted(events[0] - events[1])] + [
            f"events: unexpected {e}" for e in sorted(events[1] - events[0])
        ]
    if actual.get("error") != expected.get("error"):
        found.append("error: expected {!r}, got {!r}".format(expected.get("error"), actual.get("error")))
    return found


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--skip", default="", help="comma list of: events, messages, causes, tracked")
    ap.add_argument("--strict", action="store_true", help="also the order of conditions and the words of refusals")
    ap.add_argument("expected")
    ap.add_argument("actual")
    a = ap.parse_args()
    skip = {s for s in a.skip.split(",") if s}

    def load(p):
        return yaml.load(open(p), LOADER)

    if os.path.isfile(a.expected):
        pairs = [(os.path.basename(os.path.dirname(os.path.abspath(a.expected))), a.expected, a.actual)]
    else:
        pairs = [
            (c, os.path.join(a.expected, c, "observed.yaml"), os.path.join(a.actual, c, "observed.yaml"))
            for c in sorted(os.listdir(a.expected))
        ]
        pairs = [p for p in pairs if os.path.exists(p[1])]
    same = differ = missing = 0
    for case, left, right in pairs:
        if not os.path.exists(right):
            missing += 1
            print(f"{case}: not run")
            continue
        found = compare(load(left), load(right), skip, a.strict)
        same, differ = same + (not found), differ + bool(found)
        if found:
            print("%s: %d differences" % (case, len(found)))
            for f in found:
                print("    " + f)
    print("%d same, %d different, %d not run" % (same, differ, missing))
    sys.exit(1 if differ or missing else 0)


if __name__ == "__main__":
    main()
