"""How the answers of a replayed case differ from the recorded ones."""


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
