"""Runs, models and actions in a browser: hostile texts stay texts, dialogs name the object, and a stale page changes nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from factories import trainjob
from support.browser import Browser, browser
from support.page_server import serving
from support.waiting import eventually
from support.written_exports import write_export

from trainwright.api import names
from trainwright.api.kinds import TRAINJOB
from trainwright.checkpoints.pointers import update_latest
from trainwright.checkpoints.promotion import Alias
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.storage.open import open_store
from trainwright.ui.call import Page
from trainwright.workspace import begin_run, touch_run

pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'
_BUTTONS = "return [...document.querySelectorAll('.actions button{}')].map(each => each.textContent.trim())"
_OFFERED, _NOT_OFFERED = _BUTTONS.format(":not([aria-disabled])"), _BUTTONS.format("[aria-disabled=true]")
MARKDOWN = f"""# Report {HOSTILE}

| column | value |
|---|---|
| {HOSTILE} | [link](javascript:document.title="owned") |

- [good](https://example.com/x) ![image](http://example.com/x.png)
"""


@pytest.fixture
def exports(tmp_path: Path, page: Page) -> Path:
    folder = tmp_path / "exports"
    origin = {"dataset": "sha256:" + "d" * 64}
    files = {"README.md": MARKDOWN.encode(), "adapter_config.json": b'{"r": 8}'}
    write_export(folder, "one", metrics={"loss": 2.0, HOSTILE: 1.0}, files=files, metadata={"origin": origin, "owner": HOSTILE})
    write_export(folder, "one", "checkpoint-10", metrics={"loss": 1.5}, files={"adapter_config.json": b'{"r": 16}'})
    write_export(folder, "two", "checkpoint-7")
    alias = Alias(f"file://{folder}")
    alias.promote(f"file://{folder}/one/checkpoint-5", evaluation={"loss": 2.0}, reason=HOSTILE)
    alias.promote(f"file://{folder}/one/checkpoint-10", evaluation={"loss": 1.5})
    return folder


@pytest.fixture
def run(workspace: Path) -> Path:
    begin_run(workspace, "runs/r1", run=f"r1 {HOSTILE}", owner=HOSTILE, dataset="sha256:" + "d" * 64)
    folder = workspace / "runs" / "r1"
    (folder / "output" / "checkpoint-5").mkdir(parents=True)
    history = [{"step": step, "loss": 3.0 / step, HOSTILE: 1.0} for step in range(1, 300)] + [{"step": 300, "loss": math.nan}]
    (folder / "output" / "checkpoint-5" / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    (folder / "dataset-report.md").write_text(MARKDOWN)
    result = {"before": {"loss": 3.0, HOSTILE: 1.0}, "after": {"loss": 2.0}, "sample": {"prompt": HOSTILE}}
    (folder / "evaluation" / "0123456789ab").mkdir(parents=True)
    (folder / "evaluation" / "0123456789ab" / "result.json").write_text(json.dumps(result))
    return folder


@pytest.fixture
def shown(cluster: EmbeddedCluster, page: Page, exports: Path, run: Path) -> Iterator[Browser]:
    """A browser with a session on the page."""
    with serving(cluster, page) as server, browser() as window:
        window.open(server.link())
        window.wait_for("TrainJobs")
        yield window


def go(window: Browser, route: str, *words: str, **values: str) -> None:
    window.script("location.hash = arguments[0]", f"#{route}{'?' + urlencode(values) if values else ''}")
    window.wait_for(*words)


def dialog(window: Browser) -> str:
    return str(window.element("dialog[open]").text)


def test_hostile_texts_stay_texts_at_any_width(shown: Browser, exports: Path) -> None:
    root, place = f"file://{exports}", "/runs/0%3Adefault%2Fdata/r1"
    pages: list[tuple[str, tuple[str, ...], dict[str, str]]] = [
        ("/runs", ("r1 <img", "in progress", "no TrainJob yet"), {}),
        (place, ("Base model", "Evaluation of export 0123456789ab", "Sample: prompt", "<script>"), {}),
        (place, ("From trainer_state.json", "checkpoint-5"), {"tab": "trainings"}),
        ("/runs/compare", ("training loss", "<script>"), {"run": "0:default/data/r1"}),
        (place, ("Report <img", "good"), {"tab": "files"}),
        ("/models", ("champion", "<script>", "2 runs"), {}),
        ("/models", ("2 exports", "checkpoint-10"), {"uri": f"{root}/one"}),
        ("/models/export", ("Model card", "Provenance", "adapter_config.json"), {"uri": f"{root}/one/checkpoint-5"}),
        (
            "/models/diff",
            ("Settings", "adapter_config.json: r"),
            {"one": f"{root}/one/checkpoint-5", "other": f"{root}/one/checkpoint-10"},
        ),
        ("/models", ("is not below a folder",), {"uri": "file:///etc"}),
    ]
    for width in (1280, 360):
        shown.resize(width, 800)
        for number, (route, words, values) in enumerate(pages):
            go(shown, route, *words, **values)
            shown.picture(f"models-{number}-{width}")
            assert shown.script("return document.documentElement.scrollWidth") <= width, (route, values)
            assert shown.script("return document.querySelector('main h1').getBoundingClientRect().top + scrollY") < 200, route
            assert shown.count("main img") == 0
            assert shown.script("return document.title") != "owned"
            links = shown.script("return [...document.querySelectorAll('main a')].map(each => each.href)")
            assert all(link.startswith(("http://127.0.0.1", "https://example.com", "https://huggingface.co")) for link in links)
    problems = [message for message in shown.messages() if "403" not in message]  # the last page was refused
    assert problems == []


def test_runs_are_chosen_and_compared(shown: Browser, workspace: Path) -> None:
    begin_run(workspace, "runs/r2", run="dag/manual__2", owner="airflow/dag")
    (workspace / "runs" / "r2" / "metrics.jsonl").write_text(f"{json.dumps({'step': 1, 'only': 0.5, 'loss': 7})}\n")
    go(shown, "/runs", "dag · manual__2")
    assert shown.element(".heading button").get_attribute("aria-disabled") == "true"
    for title in ("dag · manual__2", "r1 <img"):
        shown.script("document.querySelector(arguments[0]).click()", f"input[aria-label^='Compare {title}']")
    eventually(lambda: shown.element(".heading button").get_attribute("aria-disabled") is None)
    shown.click("Compare")
    shown.wait_for("Runs compared", "training: only, last value")
    cells = shown.script("return [...document.querySelectorAll('tr')].map(row => [...row.cells].map(cell => cell.innerText))")
    rows = {name: rest for name, *rest in cells}
    assert rows["training: only, last value"] == ["0.5", ""], "the other run lacks it"
    assert rows["training: loss, last value"] == ["7", "not finite"]
    assert rows["training loss"] == ["", "2"]
    begin_run(workspace, "runs/r3", run="dag/manual__2", owner="airflow/dag")
    both = urlencode([("run", f"0:default/data/{name}") for name in ("r2", "r3", "none")])
    shown.script("location.hash = arguments[0]", f"#/runs/compare?{both}")
    shown.wait_for("dag · manual__2 (0:default/data/r3)", "has no run none")


def test_pages_of_a_list_are_added_to_it(shown: Browser, workspace: Path, exports: Path) -> None:
    for number in range(59):
        begin_run(workspace, f"runs/more-{number}", run=f"more-{number}", owner="")
    go(shown, "/runs", "50 of 60 runs")
    shown.click("Show more runs")
    eventually(lambda: shown.count("main tbody tr") == 60)
    assert "Show more" not in shown.text()
    write_export(exports, "many", files={f"part-{number:03}": b"" for number in range(600)})
    go(shown, "/models/export", "Show more of 601 files", uri=f"file://{exports}/many/checkpoint-5")
    shown.click("Show more of 601 files")
    shown.wait_for("part-599")
    assert "Show more" not in shown.text()


def test_models_are_listed_with_metrics_without_opening_a_folder(
    shown: Browser, workspace: Path, exports: Path, cluster: EmbeddedCluster
) -> None:
    own, foreign = exports.parent / "exports" / "of-runs", exports.parent / "exports" / "of-jobs"
    for folder in (own, foreign):
        made = write_export(folder, "r9", metrics={"eval_loss": 0.125})
        update_latest(open_store(f"file://{folder}/r9"), "checkpoint-5", made)
    begin_run(workspace, "runs/r9", run="r9", owner="")
    touch_run(workspace, "runs/r9", exported=f"file://{own}/r9/checkpoint-5")
    env = [{"name": names.RESUME_EXPORT_VARIABLE, "value": f"file://{foreign}/r9/checkpoint-5"}]
    cluster.create(trainjob("resumes", trainer={"env": env}))
    go(shown, "/models", f"file://{own}", "eval_loss 0.125", "TrainJob default/resumes")
    assert shown.text().count("eval_loss 0.125") == 1, "the folder that a job names is only offered"


def test_charts_that_people_look_for_come_first(shown: Browser) -> None:
    go(shown, "/runs/0%3Adefault%2Fdata/r1", "From trainer_state.json", tab="trainings")
    captions = "return [...document.querySelectorAll('.chart figcaption')].map(each => each.innerText)"
    assert shown.script(captions) == ["loss"]
    shown.click("1 other metric")
    eventually(lambda: shown.script(captions) == ["loss", HOSTILE])


def test_words_of_short_cells_are_not_broken(shown: Browser, cluster: EmbeddedCluster) -> None:
    shown.resize(800, 800)
    made = cluster.create(trainjob("demo"))
    condition = {"type": "Failed", "status": "True", "reason": "OOMKilledInPod", "message": "x" * 2000}
    cluster.update_status({**made, "status": {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    go(shown, "/jobs/default/demo", "OOMKilledInPod")
    lines = "cell => { const range = new Range(); range.selectNodeContents(cell); return range.getClientRects().length }"
    cells = f"return [...document.querySelectorAll('td.short')].map({lines})"
    assert set(shown.script(cells)) == {1}
    assert shown.script("return document.documentElement.scrollWidth") <= 800


def test_a_promotion_is_asked_for_and_refused_on_a_stale_page(shown: Browser, exports: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    root = f"file://{exports}"
    go(shown, "/models/export", "Promote to champion", uri=f"{root}/two/checkpoint-7")
    shown.click("Promote to champion")
    assert f"{root}/two/checkpoint-7" in dialog(shown)
    assert f"in place of {root}/one/checkpoint-10" in dialog(shown)
    shown.press(Keys.ESCAPE)
    eventually(lambda: shown.count("dialog") == 0)
    assert shown.script("return document.activeElement.innerText").startswith("Promote to champion")
    shown.click("Promote to champion")
    Alias(root).promote(f"{root}/one/checkpoint-5")  # by somebody else
    shown.script("[...document.querySelectorAll('dialog button')].at(-1).click()")
    eventually(lambda: "another export was promoted meanwhile" in dialog(shown))
    record = Alias(root).read()
    assert record is not None
    assert record.current.uri == f"{root}/one/checkpoint-5"


def test_a_roll_back_clicked_twice_happens_once(shown: Browser, exports: Path) -> None:
    root = f"file://{exports}"
    go(shown, "/models", "Roll champion back")
    shown.click("Roll champion back")
    assert f"will name {root}/one/checkpoint-5 again" in dialog(shown)
    shown.type("dialog input[name=reason]", "worse on new data")
    shown.script("const button = [...document.querySelectorAll('dialog button')].at(-1); button.click(); button.click()")
    shown.wait_for("worse on new data")
    record = Alias(root).read()
    assert record is not None
    assert (record.current.uri, len(record.history)) == (f"{root}/one/checkpoint-5", 2)


def test_a_job_is_suspended_resumed_and_stopped(shown: Browser, cluster: EmbeddedCluster) -> None:
    folder = {"annotations": {names.RUN_FOLDER_ANNOTATION: "pvc://data/runs/r1"}}
    cluster.create(trainjob("demo", metadata=folder))

    def spec() -> Any:
        return cluster.get(TRAINJOB, "demo", "default")["spec"]

    go(shown, "/jobs/default/demo", "Suspend", "Resume: it was not suspended", "r1")
    assert shown.script(_NOT_OFFERED) == ["Resume: it was not suspended"]
    for action, outcome in (
        ("Suspend", "it is suspended, and resumes"),
        ("Resume", "it is resumed"),
        ("Stop for good", "it is deleted"),
    ):
        eventually(lambda action=action: action in shown.script(_OFFERED))
        shown.click(action)
        assert "TrainJob default/demo" in dialog(shown)
        shown.script("[...document.querySelectorAll('dialog button')].at(-1).click()")
        shown.wait_for(outcome)
        assert bool(spec().get("suspend")) is (action == "Suspend")
    shown.wait_for("it is being deleted")
