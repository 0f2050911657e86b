"""The pure modules of the page's scripts: what they compute, one table of cases for each, in the browser that runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from factories import cluster_in_memory
from support.browser import Browser, browser

from trainwright.controlplane.apiserver.http.serve import serve
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.access import LinkLogin
from trainwright.ui.app import LOOPBACK_NAMES, PageApp
from trainwright.ui.call import Page
from trainwright.ui.links import Links, new_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
_CALL = """
const [module, source, done] = arguments;
import(new URL(`js/${module}`, document.baseURI)).then((found) => done({value: SOURCE}), (error) => done({error: String(error)}));
"""
ROW = (
    "{namespace: 'a', name: NAME, runtime: 'torch', phase: PHASE, reason: '', queue: '', created: CREATED, "
    "creator: {name: 'dag', run: 'r1'}}"
)


def row(name: str, phase: str, created: str) -> str:
    return ROW.replace("NAME", json.dumps(name)).replace("PHASE", json.dumps(phase)).replace("CREATED", json.dumps(created))


ROWS = (
    "["
    + ", ".join(
        (row("one", "Failed", "2026-01-01T00:00:00Z"), row("two", "Running", "2026-01-03T00:00:00Z"), row("ten", "Queued", "x"))
    )
    + "]"
)
PREPARED = f"{ROWS}.map(found.prepared)"
LINES = "[['T1.0Z', 'a'], ['T1.5Z', 'b'], ['T2.7Z', 'c']]".replace("T", "2026-01-01T00:00:0")
REPEATED = "[['T2.7Z', 'c'], ['T2.7Z', 'd'], ['T2.8Z', 'e']]".replace("T", "2026-01-01T00:00:0")
LOADED = f"(() => {{ const log = new found.LogLines(); log.prepend({{lines: {LINES}, cut: true}}); return log }})()"
RESUMED = f"const log = {LOADED}; log.resume();"
STATE = "return [log.lines.length, log.shift, log.isCut]"
NEXT = "[next.call(one, 1), next.call(one, 3), next.call(one, 2, true), next.call(one, 0, true)]"


def searched(text: str, *, expression: bool = False, case: bool = False) -> str:
    pattern = json.dumps({"text": text, "expression": expression, "case": case})
    lines = "[['', 'ab'], ['', 'cd'], ['', 'A']]"
    return f"(() => {{ const one = new found.LogSearch({pattern}); one.countOn({lines}); return one }})()"


UUID = "0a1b2c3d-0000-4000-8000-000000000000"


def titled(run: str, name: str) -> str:
    return f"found.runTitle({{name: 'folder', run: '{run}', started: '2026-11-29T10:00:00Z', creator: {{name: '{name}'}}}})"


LOSS = """{after: {loss: 1.5}, before: {loss: 3, perplexity: 20}, loss: {name: 'loss'}, of: 'held-out loss', rows: 4, mark: '',
    rowsDigest: 'a'}"""
TRAINING_LOSS = (
    LOSS.replace("loss: 1.5", "training_loss: 0.5").replace("'loss'", "'training_loss'").replace("held-out", "training")
)
TRAINING_LOSS = TRAINING_LOSS.replace("'a'", "'b'")
MARKED = LOSS.replace("mark: ''", "mark: '2 of 4 are also trained on'").replace(
    "held-out loss'", "held-out loss (2 of 4 rows are also trained on)'"
)


def compared(evaluation: str, **last: Any) -> str:
    """A run for `comparison`, with an evaluation and the last values of its training."""
    series = ", ".join(f"{name}: [[1, 9], [2, {value}]]" for name, value in last.items())
    return f"{{page: {{evaluation: {evaluation}}}, trainings: [{{name: '', series: {{{series}}}}}]}}"


CASES: dict[str, list[tuple[str, Any]]] = {
    "format.js": [
        ("found.duration(0)", "0 s"),
        ("found.duration(59.6)", "1 min"),
        ("found.duration(3600 * 50 + 61)", "2 d 2 h"),
        ("found.duration(86400)", "1 d"),
        ("found.duration(-5)", "0 s"),
        ("found.duration(NaN)", ""),
        ("found.bytes(999)", "999 B"),
        ("found.bytes(1500)", "1.5 kB"),
        ("found.bytes(2e8)", "200 MB"),
        ("found.bytes(undefined)", ""),
        ("found.figure(0.000012345678)", "0.000012346"),
        ("found.figure('')", ""),
        ("found.figure(null)", ""),
        ("found.figure('nan')", "nan"),
        ("found.figure(1234567)", "1,234,567"),
        ("found.counted(1, 'pod')", "1 pod"),
        ("found.counted(5000, 'pod')", "5,000 pods"),
        ("found.localTime('no time')", "no time"),
    ],
    "job_rows.js": [
        (f"found.filtered({PREPARED}, 'TORCH two', new Set()).map((each) => each.name)", ["two"]),
        (f"found.filtered({PREPARED}, 'r1', new Set(['Failed', 'Queued'])).map((each) => each.name)", ["one", "ten"]),
        (f"found.filtered({PREPARED}, 'nothing', new Set()).length", 0),
        (f"found.sorted({PREPARED}, 'age', false).map((each) => each.name)", ["two", "one", "ten"]),
        (f"found.sorted({PREPARED}, 'name', true).map((each) => each.name)", ["two", "ten", "one"]),
        (f"found.sorted({PREPARED}, 'phase', false).map((each) => each.phase)", ["Queued", "Running", "Failed"]),
        (f"found.sorted({PREPARED}, 'constructor', false).length", 3),
        (f"[...found.phaseCounts({PREPARED})]", [["Failed", 1], ["Running", 1], ["Queued", 1]]),
        (
            f"[...found.applied(found.applied(new Map(), {{type: 'rows', rows: {ROWS}}}), "
            f"{{type: 'changes', rows: [{row('two', 'Succeeded', '')}], gone: [['a', 'one']]}}).values()].map((each) => each.phase)",
            ["Succeeded", "Queued"],
        ),
    ],
    "curves.js": [
        (
            "found.ordered(['x', 'grad_norm', 'rewards/margins', 'rewards/accuracies', 'lr', 'eval_loss', 'loss', 'eval_f1'])",
            [["loss", "eval_loss", "lr", "rewards/accuracies", "rewards/margins", "grad_norm"], ["eval_f1", "x"]],
        ),
        ("found.ordered(['train_loss', 'aux_loss', 'eval_mean_token_accuracy', 'lossless', 'plr'])[1]", ["lossless", "plr"]),
        (
            "found.ordered(['constructor', '__proto__'])",
            [[], ["__proto__", "constructor"]],
        ),
        (
            "found.laidOver([{name: 'a', values: new Map([[2, 1], [1, 3]])}, {name: 'b', values: new Map([[2, null]])}]).data[0]",
            [1, 2],
        ),
        ("found.laidOver([{name: 'a', values: new Map([[1, 3]])}, {name: 'b', values: new Map([[2, null]])}]).data[2][1]", None),
        (
            "[...found.merged({series: {loss: [[1, 2]]}}, {points: [[1, {loss: 9}], [2, {loss: 1}]]}).get('loss')]",
            [[1, 2], [2, 1]],
        ),
        ("found.merged(null, null).size", 0),
        ("found.smoothed([1, null, 3], 0)", [1, None, 3]),
        ("found.smoothed([2, 2, 2], 0.9).map((value) => Math.round(value * 1000) / 1000)", [2, 2, 2]),
        ("found.smoothed([NaN, 4], 0.5)[1]", 4),
    ],
    "comparison.js": [
        (
            f"found.comparison([{compared(LOSS)}, {compared('null', loss=2)}]).rows",
            [
                ["held-out loss", "1.5", ""],
                ["held-out loss, base model", "3", ""],
                ["perplexity, base model", "20", ""],
                ["rows evaluated", "4", ""],
                ["training: loss, last value", "", "2"],
            ],
        ),
        (f"found.comparison([{compared(LOSS)}, {compared(TRAINING_LOSS)}]).rows[0]", ["held-out loss", "1.5", ""]),
        (f"found.comparison([{compared(LOSS)}, {compared(TRAINING_LOSS)}]).rows[1]", ["training loss", "", "0.5"]),
        (f"found.comparison([{compared(LOSS)}, {compared('null', loss=2)}]).notes", []),
        (f"found.comparison([{compared(LOSS)}, {compared(TRAINING_LOSS)}]).notes.length", 1),
        (f"found.comparison([{compared(MARKED)}]).rows.at(-1)", ["rows also trained on", "2 of 4 are also trained on"]),
        (f"found.comparison([{compared(MARKED)}]).notes.length", 1),
        (
            f"found.comparison([{compared('null', constructor='null')}]).rows",
            [["training: constructor, last value", "not finite"]],
        ),
    ],
    "views/model_parts.js": [
        (titled("dag/scheduled__1", "dag"), "dag · scheduled__1"),
        (titled("nightly", "dag"), "dag · nightly"),
        (titled("finetune-2026-11-29", "finetune"), "finetune-2026-11-29"),
        (titled("jane-20261129-163405-abcd", ""), "jane-20261129-163405-abcd"),
        (titled("", ""), "folder"),
        (f"{titled(UUID, 'finetune')}.startsWith('finetune · ')", True),
        (f"{titled(UUID, 'finetune')}.includes('{UUID}')", False),
    ],
    "log_lines.js": [
        (f"{LOADED}.lines.map((each) => each[1])", ["a", "b", "c"]),
        (
            f"(() => {{ const log = {LOADED}; log.prepend({{lines: [['x', 'y'], ...log.lines], cut: false}}); {STATE} }})()",
            [4, 1, False],
        ),
        (f"(() => {{ const log = {LOADED}; log.prepend({{lines: [['x', 'y']], cut: true}}); {STATE} }})()", [3, 0, True]),
        (f"{LOADED}.resume()", "2026-01-01T00:00:01.5Z"),
        ("new found.LogLines().resume()", ""),
        (f"(() => {{ {RESUMED} log.append({REPEATED}); return log.lines.map((each) => each[1]).join('') }})()", "abcde"),
        (
            f"(() => {{ const log = {LOADED}; log.resume(); log.append([['t', 'x'.repeat(6e7)], ['t', 'y']]); {STATE} }})()",
            [3, -2, True],
        ),
        (f"{searched('A')}.hits", [0, 2]),
        (f"{searched('A', case=True)}.hits", [2]),
        (f"{searched('a.', expression=True)}.hits", [0]),
        (f"{searched('.')}.hits", []),
        (f"{searched('(', expression=True)}.problem.name", "SyntaxError"),
        (f"(() => {{ const {{next}} = found.LogSearch.prototype, one = {searched('A')}; return {NEXT} }})()", [2, 0, 0, 2]),
    ],
    "route.js": [
        ("found.to('jobs', 'a/b', 'ü')", "#/jobs/a%2Fb/%C3%BC"),
    ],
}


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    with cluster_in_memory() as cluster:
        app = PageApp(LinkLogin(Links(new_key()), lambda: JobsClient.of(cluster)), Page(), hosts=LOOPBACK_NAMES)
        with serve(app, port=0) as serving, browser() as window:
            window.open(f"{serving.url}/ui/")
            window.wait_for("Trainwright")
            yield window


@pytest.mark.parametrize(("module", "source", "expected"), [(module, *case) for module, cases in CASES.items() for case in cases])
def test_module_computes(page: Browser, module: str, source: str, expected: Any) -> None:
    answered = page.asynchronous(_CALL.replace("SOURCE", source), module, source)
    assert "error" not in answered, answered
    assert answered.get("value") == expected
