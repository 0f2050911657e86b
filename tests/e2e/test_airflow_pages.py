"""What a user of Airflow's web interface sees: the form of a DAG, the form of a connection, and the links of a deferred task.

TRAINWRIGHT_SCREENSHOTS names a folder for pictures of these pages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.airflow_with_cluster import Scene, running_scene
from support.browser import CHROMIUM, DRIVER, QUIET
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages
from support.waiting import eventually

from trainwright.api.objects import name_of

webdriver = OnFirstUse("selenium.webdriver")
require_packages("selenium", extra="dev")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
DAGS = """
from airflow.sdk import DAG
from trainwright.example_dags.finetune import dag as finetune
from trainwright.example_dags.scheduled_retraining import dag as retraining
from trainwright.example_dags.sweep import dag as sweep
from trainwright.operators import TrainJobOperator

with DAG("linked", schedule=None, catchup=False) as linked:
    TrainJobOperator(
        task_id="train", runtime="wait-for-a-file", deferrable=True, conn_id="cluster",
        deferral={"min_defer_seconds": 5, "log_poll_interval": 2},
    )
"""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    with running_scene(
        tmp_path_factory.mktemp("airflow"),
        DAGS,
        ("trainwright_finetune", "trainwright_retraining", "trainwright_sweep", "linked"),
    ) as running:
        yield running


class Pages:
    """A browser on the interface."""

    def __init__(self, driver: Any, url: str):
        self._driver, self._url = driver, url

    def open(self, path: str) -> None:
        self._driver.get(f"{self._url}/{path}")

    def text(self) -> str:
        return str(self._driver.execute_script("return document.body.innerText"))

    def wait_for(self, *words: str) -> None:
        try:
            eventually(lambda: all(word in self.text() for word in words), 60, f"{words} on the page")
        except AssertionError:
            self.picture("failed")
            raise

    def click(self, word: str) -> None:
        """Click on the first button or link with this text."""
        script = (
            "const found = [...document.querySelectorAll('button, a, [role=button], [role=tab], [role=menuitem], summary')]"
            ".find(each => each.innerText.trim().startsWith(arguments[0]) || each.getAttribute('aria-label') === arguments[0]);"
            "if (found) found.click(); return Boolean(found);"
        )
        eventually(lambda: self._driver.execute_script(script, word), 60, f"a button {word!r}")

    def expand(self, word: str) -> None:
        """Expand a section of the page, which closes the one that was open."""
        from selenium.webdriver.common.by import By

        path = f"//button[@aria-expanded][normalize-space(.)='{word}']"
        (part,) = eventually(lambda: self._driver.find_elements(By.XPATH, path), 30, f"a part {word!r}")
        part.click()
        eventually(lambda: part.get_attribute("aria-expanded") == "true", 10, f"{word!r} to be expanded")

    def fill_places(self) -> None:
        """Fill in what every fine-tuning needs."""
        for name, value in (
            ("dataset_uri", "hf://org/data"),
            ("model_uri", "hf://org/model"),
            ("export_uri", "file:///exports"),
            ("workspace", "training"),
        ):
            self.fill(f"element_{name}", value)

    def fill(self, identifier: str, text: str) -> None:
        """Type a text into the field with this name."""
        from selenium.webdriver.common.by import By

        self._driver.find_element(By.NAME, identifier).send_keys(text)

    def replace(self, identifier: str, text: str) -> None:
        """Replace the text of the field with this name."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys

        self._driver.find_element(By.NAME, identifier).send_keys(Keys.CONTROL, "a", Keys.NULL, text)

    def submit(self, word: str) -> None:
        """Click on the button of the dialog, as soon as it may be clicked on."""
        script = (
            "const found = [...document.querySelectorAll('[role=dialog] button')]"
            ".find(each => each.innerText.trim() === arguments[0] && !each.disabled); if (found) found.click(); return Boolean(found);"
        )
        eventually(lambda: self._driver.execute_script(script, word), 30, f"the button {word!r} of the dialog")

    def choose(self, word: str, identifier: str = "") -> None:
        """Choose from the list of the dialog, or from the one with this id."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys

        within = f"#{identifier}" if identifier else "[role=dialog]"
        self._driver.find_element(By.CSS_SELECTOR, f"{within} input[role=combobox]").send_keys(word, Keys.ENTER)

    def links(self) -> list[str]:
        return list(self._driver.execute_script("return [...document.querySelectorAll('a')].map(each => each.href)"))

    def picture(self, name: str) -> None:
        if folder := os.environ.get("TRAINWRIGHT_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            moves = "each => each.playState === 'running' && each.effect.getComputedTiming().endTime < 5000"
            script = f"return document.getAnimations().some({moves})"
            eventually(lambda: not self._driver.execute_script(script), 30, "the page to be still")
            self._driver.save_screenshot(str(Path(folder, f"{name}.png")))


@pytest.fixture
def pages(scene: Scene, tmp_path: Path) -> Iterator[Pages]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (*QUIET, "--window-size=1600,2000", f"--user-data-dir={tmp_path}"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    try:
        yield Pages(driver, scene.airflow.url)
    finally:
        driver.quit()


def test_a_run_is_started_from_the_form_with_what_it_needs(scene: Scene, pages: Pages) -> None:
    pages.open("dags/trainwright_finetune")
    pages.click("Trigger")
    pages.wait_for("Dataset URI", "Model URI", "Export URI", "Workspace")
    pages.fill_places()
    pages.picture("trigger-form")
    pages.expand("Training")
    pages.wait_for("Any other setting of the training")
    pages.picture("trigger-form-training")
    pages.submit("Trigger")
    runs = eventually(lambda: scene.airflow.call("GET", "dags/trainwright_finetune/dagRuns")["dag_runs"], 30, "a run")
    assert (runs[0]["conf"]["dataset_uri"], runs[0]["conf"]["workspace"]) == ("hf://org/data", "training")


def test_form_of_a_retraining_sends_only_what_was_chosen(scene: Scene, pages: Pages) -> None:
    """Airflow sends all fields. Those of settings are empty, so that the Variable applies unless a person has chosen."""
    pages.open("dags/trainwright_retraining")
    pages.click("Trigger")
    pages.expand("Training")
    pages.wait_for("Warm start")
    pages.fill("element_num_nodes", "0")
    pages.expand("Evaluation")
    pages.choose("better", "element_promote")
    pages.expand("Run")
    pages.wait_for("as the Variable trainwright_retraining says, else false")
    pages.fill("element_always_train", "false")
    pages.picture("retraining-form")
    pages.submit("Trigger")

    def confs() -> list[Any]:
        """Those of the runs that were started here: the DAG has a schedule, too."""
        runs = scene.airflow.call("GET", "dags/trainwright_retraining/dagRuns")["dag_runs"]
        return [run["conf"] for run in runs if run["conf"]]

    (conf,) = eventually(confs, 30, "a run")
    assert {name: value for name, value in conf.items() if value is not None} == {
        "promote": "better",
        "always_train": "false",
        "num_nodes": 0,
        "roll_back": False,
    }


def test_list_of_objects_is_filled_in_as_json(scene: Scene, pages: Pages) -> None:
    pages.open("dags/trainwright_sweep")
    pages.click("Trigger")
    pages.wait_for("Dataset URI")
    pages.fill_places()
    pages.expand("Search")
    pages.wait_for("Trials", "the settings of each trial")
    pages.picture("sweep-form")
    pages.replace("element_trials", '[{"learning_rate": 1e-4}, {"learning_rate": 2e-4}]')
    pages.submit("Trigger")
    runs = eventually(lambda: scene.airflow.call("GET", "dags/trainwright_sweep/dagRuns")["dag_runs"], 30, "a run")
    assert runs[0]["conf"]["trials"] == [{"learning_rate": 1e-4}, {"learning_rate": 2e-4}]


def test_the_links_of_a_deferred_task(scene: Scene, pages: Pages) -> None:
    job = scene.begin("linked", "shown")
    pages.open("dags/linked/runs/shown/tasks/train/details")
    expected = f"https://dashboard.example.com/default/{name_of(job)}"
    eventually(lambda: expected in pages.links(), 60, "the link to the TrainJob")
    pages.picture("links")
    assert scene.airflow.task("linked", "shown")["state"] == "deferred"
    scene.finish("linked", "shown", tries=1)


def test_the_form_of_a_connection_has_the_fields_of_the_provider(pages: Pages) -> None:
    pages.open("connections")
    pages.click("Add Connection")
    pages.wait_for("Select Connection Type")
    pages.choose("trainwright")
    pages.expand("Extra Fields")
    pages.wait_for("Path of a kubeconfig", "Namespace")
    pages.picture("connection-form")


def test_the_provider_is_listed(pages: Pages) -> None:
    pages.open("providers")
    pages.wait_for("trainwright")
    pages.picture("providers")
