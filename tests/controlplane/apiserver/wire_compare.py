"""compare.py --kubeconfig FILE [--dir DIR ...] [SLUG ...]: replays recorded cases against another server and compares. Exit code 1 on any difference."""

import argparse
import collections
import glob
import os
import sys

import wire_exchanges as wire


def diff(a, b, path=""):
    """Paths where b (got) differs from a (expected)."""
    if isinstance(a, dict) and isinstance(b, dict):
        out = []
        for k in sorted(set(a) | set(b), key=str):
            p = f"{path}.{k}" if path else str(k)
            if k not in b:
                out.append(f"{p}: missing, expected {short(a[k])}")
            elif k not in a:
                out.append(f"{p}: not expected, got {short(b[k])}")
            else:
                out += diff(a[k], b[k], p)
        return out
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return [f"{path}: {len(a)} elements expected, got {len(b)}: {short(b)}"]
        return [d for i, (x, y) in enumerate(zip(a, b, strict=False)) for d in diff(x, y, f"{path}.{i}")]
    return [] if a == b and type(a) is type(b) else [f"{path}: expected {short(a)}, got {short(b)}"]


def short(v):
    s = repr(v)
    return s if len(s) < 160 else s[:157] + "..."


def differences(recorded, replayed):
    out = []
    for i, (e, g) in enumerate(zip(recorded["steps"], replayed["steps"], strict=False)):
        name = e.get("do") or "events " + str(e.get("events", ""))
        out += [f"step {i + 1} ({name}): {d}" for d in diff(e.get("expected"), g.get("expected"))]
    if not out:
        out += [f"order of resource versions: {d}" for d in diff(recorded.get("rv_order"), replayed.get("rv_order"))]
    return out


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--kubeconfig", required=True)
    p.add_argument("--dir", action="append", help="default: recorded/")
    p.add_argument(
        "--without", action="append", default=[], help="skip cases that need this (gc, namespace-controller, webhooks)"
    )
    p.add_argument("-v", action="store_true")
    p.add_argument("slugs", nargs="*")
    a = p.parse_args()
    import record

    server, tally = wire.Server(a.kubeconfig), collections.defaultdict(lambda: [0, 0])
    for path in sorted(f for d in a.dir or [here + "/recorded"] for f in glob.glob(d + "/*.yaml")):
        slug = os.path.basename(path)[:-5]
        if a.slugs and slug not in a.slugs:
            continue
        recorded = wire.load(path)
        if set(recorded.get("needs", [])) & set(a.without):
            continue
        case = dict(recorded, steps=[{k: v for k, v in s.items() if k != "expected"} for s in recorded["steps"]])
        try:
            d = differences(recorded, record.record(case, server))
        except Exception as e:
            d = [f"{type(e).__name__}: {str(e)[:300]}"]
        tally[recorded["area"]][bool(d)] += 1
        if d:
            print("DIFFERS", slug, *(d if a.v else d[:6]), sep="\n   ")
    for area in sorted(tally):
        print(f"{area:24} same {tally[area][0]:4}   different {tally[area][1]:4}")
    return 1 if any(t[1] for t in tally.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
