"""The form in a browser: problems where they are made, texts instead of a run, and a run that fails, is resumed, and promotes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import Browser, browser
from support.fast_training_cluster import Inputs, Runs, running, script
from support.waiting import eventually

from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of
from trainwright.checkpoints.promotion import Alias
from trainwright.embedded.home import Home
from trainwright.ui.links import make_code

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with running(tmp_path_factory.mktemp("form")) as found:
        yield found


@pytest.fixture(scope="module")
def window(runs: Runs) -> Iterator[Browser]:
    with browser(height=1600) as opened:
        opened.open(_link(runs))
        opened.wait_for("TrainJobs")
        yield opened


def _link(runs: Runs) -> str:
    """A link to the page of a plane in this process, which is not announced in its home."""
    key = Home(runs.folder / "home").page_key.read_bytes()
    return f"{runs.plane._page.url}#code={make_code(key)}"


def show_form(window: Browser) -> None:
    window.script("location.hash = '#/jobs'")
    window.wait_until_gone("Run id")
    window.script("location.hash = '#/new'")
    window.wait_for("Run id")


def fill(window: Browser, inputs: Inputs, **values: Any) -> None:
    paths = {"dataset_uri": inputs.dataset.removeprefix("file://"), "model_uri": inputs.model.removeprefix("file://")}
    fast = {"runtime": "fast", "evaluation": json.dumps({"runtime": "fast-evaluation"})}
    for name, value in {**paths, **fast, **values}.items():
        if name == "promote":
            window.script(
                "const field = document.querySelector('[name=promote]'); field.value = arguments[0];"
                "field.dispatchEvent(new Event('change', {bubbles: true}))",
                value,
            )
        else:
            window.type(f"[name={name}]", value)


def problem_of(window: Browser, name: str) -> str:
    return str(window.script("return document.getElementById(arguments[0]).innerText", f"field-{name}-problem"))


def test_problems_are_told_beside_their_fields(window: Browser) -> None:
    show_form(window)
    window.type("[name=epochs]", "many")
    eventually(lambda: problem_of(window, "epochs") == "expected a number", 10, "a problem")
    window.type("[name=epochs]", "-1")
    eventually(lambda: "negative" in problem_of(window, "epochs"), 10, "another problem")
    window.type("[name=training]", '{"imagee": "x"}')
    eventually(lambda: "image" in problem_of(window, "training"), 10, "a problem of the structure")
    assert window.element("[name=epochs]").get_attribute("aria-invalid") == "true"
    assert problem_of(window, "model_uri") == "", "a field that nobody has been in yet is not blamed"
    start = window.element(".actions .primary")
    assert start.get_attribute("aria-disabled") == "true"
    assert "attention" in str(start.get_attribute("title"))
    start.click()
    assert window.count("dialog") == 0
    eventually(lambda: problem_of(window, "model_uri") == "required", 10, "what is missing")
    assert window.messages() == []


def test_texts_are_written_without_starting_anything(window: Browser, runs: Runs) -> None:
    show_form(window)
    fill(window, runs.inputs("texts"))
    eventually(lambda: window.element(".actions .primary").get_attribute("aria-disabled") is None, 10, "no problem")
    for button, word in (
        ("YAML", "kind: TrainJob"),
        ("KFP code", "create_run_from_pipeline_func"),
        ("Airflow DAG", "chain.add_steps()"),
    ):
        window.click(button)
        eventually(lambda word=word: word in window.text(), 20, word)
    assert runs.cluster.list(TRAINJOB).items == []


def test_failed_run_is_resumed_and_promotes(window: Browser, runs: Runs, tmp_path: Path) -> None:
    fail, exports = tmp_path / "fail", tmp_path / "exports"
    fail.touch()
    show_form(window)
    training = json.dumps({"env": script(fails_while=str(fail)), "num_proc_per_node": 1, "settings": {"cpu": True}})
    fill(window, runs.inputs("whole"), training=training, export_uri=str(exports), promote="better", run="from-the-page")
    eventually(lambda: window.element(".actions .primary").get_attribute("aria-disabled") is None, 10, "no problem")
    window.click("Start")
    window.wait_for("Start this fine-tuning?", "from-the-page")
    window.script("document.querySelector('dialog .primary').click()")
    window.wait_for("failed", "Resume", seconds=90)
    window.wait_for("exit", seconds=20)
    fail.unlink()
    window.click("Resume")
    window.wait_for("succeeded", "checkpoint-10", "Fine-tuned", seconds=90)
    champion = Alias(f"file://{exports}").read()
    assert champion is not None
    assert champion.current.uri.endswith("from-the-page/checkpoint-10")
    window.picture("form-run")
    window.click("from-the-page-")
    window.wait_for("Timeline", "fast")
    owners = {annotations_of(job)["trainwright.dev/owner"] for job in runs.cluster.list(TRAINJOB).items}
    assert any(owner.startswith("cli/from-the-page/") for owner in owners), "trainwright finetune --run-id resumes it too"
    assert window.messages() == []
