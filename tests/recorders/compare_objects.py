"""Runs `trainwright materialize` in process over recorded cases and compares with what the real controller applied or refused.

usage: compare_objects.py [-v] CASES_DIR [SLUG ...]     with the project's Python; last line: N of M cases; exit code 1 on any difference
"""

import collections
import glob
import json
import os
import re
import sys

import yaml
from typer.testing import CliRunner

from trainwright.cli import app

NEED_A_CLUSTER = {  # the answer depends on objects that are not in the input (a namespace, a PriorityClass): only for a running API server
    "refuse-job-namespace-missing",
    "pg-volcano-priority-missing",
    "pg-volcano-priority-missing-twice",
}


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    pass


Loader.yaml_implicit_resolvers = {
    k: [(t, r) for t, r in v if t != "tag:yaml.org,2002:timestamp"] for k, v in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load(p):
    return [d for d in yaml.load_all(open(p), Loader) if d is not None]


def clean(o, path=()):
    """What README's normalisation leaves open: owner uid, secret values, script texts, key order; absent status."""
    if isinstance(o, dict):
        out = {}
        for k, v in o.items():
            if k == "uid" or (k == "creationTimestamp" and not v) or (k == "status" and not v):
                continue
            out[k] = clean(v, (*path, k))
        if o.get("kind") == "Secret" and "data" in o:
            out["data"] = dict.fromkeys(o["data"], "MASKED")
        if o.get("kind") == "ConfigMap" and "flux" in json.dumps(o.get("metadata", {})):
            out["data"] = dict.fromkeys(o["data"], "SCRIPT")
        return out
    if isinstance(o, list):
        return [clean(x, path) for x in o]
    return o


def objects(items):
    return sorted(
        (clean(o) for o in items),
        key=lambda o: (o.get("kind", ""), o.get("apiVersion", ""), o.get("metadata", {}).get("name", "")),
    )


def diff(e, g, p=""):
    if type(e) != type(g):
        return [f"{p}: expected {str(e)[:80]!r}, got {str(g)[:80]!r}"]
    if isinstance(e, dict):
        return [
            d
            for k in sorted(set(e) | set(g))
            for d in (diff(e[k], g[k], f"{p}.{k}") if k in e and k in g else [f"{p}.{k}: {'missing' if k in e else 'extra'}"])
        ]
    if isinstance(e, list):
        if len(e) != len(g):
            return [f"{p}: {len(e)} elements expected, got {len(g)}"]
        return [d for i, (a, b) in enumerate(zip(e, g, strict=False)) for d in diff(a, b, f"{p}[{i}]")]
    return [] if e == g else [f"{p}: expected {e!r}, got {g!r}"]


def main():
    verbose = "-v" in sys.argv
    root, *only = [a for a in sys.argv[1:] if a != "-v"]
    run, tally, bad = CliRunner(), collections.Counter(), []
    for case in sorted(glob.glob(root + "/*/")):
        slug = os.path.basename(case[:-1])
        if slug in NEED_A_CLUSTER or (only and slug not in only):
            continue
        r = run.invoke(app, ["materialize", "-f", case + "input.yaml", "-o", "json"])
        problems = []
        if os.path.exists(case + "refused.yaml"):
            want = load(case + "refused.yaml")[0]
            fields = {c["field"] for c in want.get("causes") or [] if (c.get("field") or "<nil>") != "<nil>"}
            fields = fields or set(re.findall(r"\b(?:spec|metadata)(?:\.\w+(?:\[\d+\])?)+", want.get("message") or ""))
            said = ((getattr(r, "stderr", "") or "") + r.output).lower()
            if r.exit_code != 2:
                problems.append(f"the real system refuses it ({(want.get('message') or '')[:160]}), exit {r.exit_code} here")
            elif fields and not any(f.lower() in said for f in fields):
                problems.append(f"refused, but none of {sorted(fields)} is named")
        elif os.path.exists(case + "failed.yaml"):
            if r.exit_code != 2:
                problems.append(f"the real controller could not build it; exit {r.exit_code} here")
        elif os.path.exists(case + "events.yaml") and r.exit_code == 2:
            pass  # built there, but its Jobs or Pods could not be created: refusing at once is as good
        else:
            if r.exit_code != 0:
                problems.append(f"exit {r.exit_code}: {r.output[:160]}")
            else:
                want = load(case + "objects.yaml")
                want = want[0].get("items", want) if want and want[0].get("kind") == "List" else want
                try:
                    got = json.loads(r.stdout)["items"]
                    problems = diff(objects(want), objects(got))
                except Exception as e:
                    problems = [f"{type(e).__name__}: {e}"]
        area = slug.split("-")[0]
        tally[area, not problems] += 1
        if problems:
            bad.append((slug, problems))
    for slug, problems in bad if verbose else bad[:5]:
        print(slug, *problems[:4], sep="\n   ")
    for area in sorted({a for a, _ in tally}):
        print(f"{area:10} same {tally[area, True]:4}  different {tally[area, False]:4}")
    n = sum(tally.values())
    print(f"{n - len(bad)} of {n} cases")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
