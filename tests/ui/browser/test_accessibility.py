"""Every view with axe-core, in light and dark, wide and narrow; by keyboard alone; and for a screen reader.

Moderate findings count, too: there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest
from axe import findings
from support.browser import FORGET, Browser, browser
from support.page_cluster import PageCluster
from support.page_scene import DONE, FAILED, FIRST, SECOND, STARTED, Scene, afternoon
from support.page_server import PageServer, serving
from support.waiting import eventually

from trainwright.api.errors import Unauthorized
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.access import TokenLogin

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
in_wide_tier = pytest.mark.wide(part="browser")
WIDE, NARROW = 1280, 360
_INTERACTIVE = "a[href], button, input, select, textarea, summary, [tabindex='0']"
# Numbers what can be reached by Tab, in the order of the document: visible, not disabled, and in the open dialog if there is one.
_NUMBER = f"""
const inside = document.querySelector("dialog[open]") || document;
let count = 0;
for (const each of document.querySelectorAll("[data-stop]")) delete each.dataset.stop;
for (const each of inside.querySelectorAll({_INTERACTIVE!r})) {{
  if (each.checkVisibility({{visibilityProperty: true}}) && !each.disabled && each.tabIndex >= 0) each.dataset.stop = count++;
}}
document.activeElement?.blur();
return count;
"""
_FOCUSED = """
const each = document.activeElement;
const style = getComputedStyle(each);
const visible = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
return [each.dataset.stop === undefined ? -1 : Number(each.dataset.stop), visible, each.outerHTML.slice(0, 150)];
"""
_NAMED_ROLES = (
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "checkbox",
    "dialog",
    "table",
    "progressbar",
    "DisclosureTriangle",
)
_LIVE = "[role=status], [role=alert], [role=log], [aria-live]:not([aria-live=off])"
_COUNT_ANNOUNCEMENTS = f"""
window.announced = [];
new MutationObserver((changes) => {{
  for (const change of changes) {{
    const node = change.target.nodeType === Node.ELEMENT_NODE ? change.target : change.target.parentElement;
    const region = node?.closest({_LIVE!r});
    if (region) window.announced.push(region.textContent);
  }}
}}).observe(document.body, {{childList: true, characterData: true, subtree: true}});
"""


@dataclass(frozen=True)
class View:
    """`route` with the values of the address shows all of these words; `click` names controls to press then."""

    name: str
    route: str
    words: tuple[str, ...]
    values: dict[str, str]
    click: tuple[str, ...] = ()


def _view(name: str, route: str, *words: str, click: tuple[str, ...] = (), **values: str) -> View:
    return View(name, route, words, values, click)


_RUN, _JOB = f"/runs/0%3Adefault%2Fdata/{DONE}", f"/jobs/default/{FIRST}"
VIEWS = [
    _view("list", "/jobs", "9 TrainJobs", FIRST, ns=""),
    _view("list, filtered", "/jobs", "2 of 9 TrainJobs", phase="Running", sort="name"),
    _view("list without rows", "/jobs", "0 of 9 TrainJobs", q="no such job"),
    _view("job", _JOB, "Timeline", "Conditions", "Started container node"),
    _view("job, lists opened", _JOB, "Timeline", "Conditions", click=("Timeline as text",)),
    _view("curves", f"{_JOB}/curves", "From trainer_state.json", "eval_loss", click=("loss as a table",)),
    _view("curves of a finished job", f"/jobs/default/{DONE}/curves", "From trainer_state.json"),
    _view("log", f"{_JOB}/logs", "grad_norm", "205 lines"),
    _view("log, searched", f"{_JOB}/logs", "live", click=("Wrap", "Times", "Match case", "Follow")),
    _view("log of a pod that has ended", f"/jobs/default/{FAILED}/logs", "step 4200", "ended"),
    _view("job without a log", "/jobs/research/qwen-dpo/logs", "There are no pods"),
    _view("objects", f"{_JOB}/objects", "As built", "In the cluster now", "jobset"),
    _view("objects, filtered", f"{_JOB}/objects", "As built", "torch", click=("torch",)),
    _view("failed job", f"/jobs/default/{FAILED}", "Why it failed", "out of memory"),
    _view("queued job", "/jobs/research/qwen-dpo", "insufficient quota"),
    _view("no such job", "/jobs/default/none", "There is no TrainJob none"),
    _view("form", "/new", "Started on this page", STARTED),
    _view("form with problems", "/new", "Start", click=("YAML",)),
    _view("started run", f"/new/{STARTED}", "no rows with a prompt", "Resume"),
    _view("runs", "/runs", FIRST, "3 runs"),
    _view("run", _RUN, "Base model", "exact_match", "Sample: prompt", tab="overview"),
    _view("run's trainings", _RUN, "grad_norm", "From trainer_state.json", tab="trainings"),
    _view("runs compared", "/runs/compare", "held-out loss", "learning_rate", run=f"0:default/data/{DONE}"),
    _view("run's files", _RUN, "312 rows were left out", tab="files"),
    _view("models", "/models", "champion", "2 runs"),
    _view("exports", "/models", "2 exports", uri=f"EXPORTS/{DONE}"),
    _view("export", "/models/export", "Provenance", "adapter_config.json", uri=f"EXPORTS/{DONE}/checkpoint-600"),
    _view(
        "two exports",
        "/models/diff",
        "adapter_config.json: r",
        one=f"EXPORTS/{DONE}/checkpoint-600",
        other="EXPORTS/summaries-1b-old/checkpoint-600",
    ),
    _view("no such folder", "/models", "is not below a folder", uri="file:///etc"),
    _view("no such view", "/nothing", "There is no such view"),
    _view("dialog of links", "/jobs", "TrainJobs", click=("Links",)),
    _view("dialog of an action", _JOB, "Stop for good", click=("Stop for good",)),
    _view(
        "dialog of a promotion", "/models/export", "Promote", uri=f"EXPORTS/{DONE}/checkpoint-400", click=("Promote to champion",)
    ),
    _view("dialog of a roll-back", "/models", "Roll champion back", click=("Roll champion back",)),
]
"""All views with something in them. The address says EXPORTS for the folder of exports."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with afternoon(tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.fixture(scope="module")
def server(scene: Scene) -> Iterator[PageServer]:
    with serving(scene.cluster, scene.page) as running:
        yield running


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as window:
        yield window


@pytest.fixture
def window(tab: Browser, server: PageServer) -> Browser:
    """A browser with a new session, wide and light."""
    tab.resize(WIDE, 900)
    tab.prefer("light")
    tab.open("about:blank")
    server.enter(tab)
    tab.messages()
    return tab


def show(window: Browser, scene: Scene, view: View) -> None:
    """Go to a view, and open what belongs to it."""
    values = {name: value.replace("EXPORTS", scene.exports) for name, value in view.values.items()}
    if window.count("dialog[open]"):
        window.script("document.querySelector('dialog[open]').close()")
    query = f"?{urlencode(values)}" if values else ""
    window.script(
        "if (location.hash === arguments[0]) location.hash = '#/nothing'; location.hash = arguments[0]", f"#{view.route}{query}"
    )
    window.wait_for(*view.words)
    for name in view.click:
        window.click(name)
        if view.name.startswith("dialog"):
            eventually(lambda: window.count("dialog[open]"), 10, f"the {view.name}")


def problems_of(window: Browser, scene: Scene, *rules: str) -> str:
    """What axe and the width of the page say of all views, each with the name of its view, one line each."""
    found = []
    for view in VIEWS:
        show(window, scene, view)
        found += [f"{view.name}: {finding}" for finding in findings(window, *rules)]
        width = window.script("return [document.documentElement.scrollWidth, innerWidth]")
        if width[0] > width[1]:
            found.append(f"{view.name}: is {width[0]} pixels wide in a window of {width[1]}")
        window.picture(f"access-{view.name.replace(' ', '-')}-{width[1]}")
    return "\n".join(found)


def test_wide_views_have_no_findings(window: Browser, scene: Scene) -> None:
    assert problems_of(window, scene) == ""


@in_wide_tier
def test_narrow_dark_views_have_no_findings_and_never_scroll_sideways(window: Browser, scene: Scene) -> None:
    window.resize(NARROW, 740)
    window.prefer("dark")
    assert problems_of(window, scene) == ""


@in_wide_tier
def test_wide_dark_views_have_enough_contrast(window: Browser, scene: Scene) -> None:
    window.prefer("dark")
    assert problems_of(window, scene, "color-contrast", "link-in-text-block") == ""


@in_wide_tier
def test_narrow_light_views_have_enough_contrast_and_never_scroll_sideways(window: Browser, scene: Scene) -> None:
    window.resize(NARROW, 740)
    assert problems_of(window, scene, "color-contrast", "link-in-text-block") == ""


def test_the_switch_of_colours_outranks_the_system(window: Browser, scene: Scene) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    window.prefer("dark")
    dark = window.script(background)
    window.click("Colours: system")
    light = window.script(background)
    assert light != dark
    window.click("Colours: light")
    assert window.script(background) == dark
    assert findings(window) == []
    window.click("Colours: dark")


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_tab_reaches_each_control_in_order_with_visible_focus(window: Browser, scene: Scene, view: View) -> None:
    from selenium.webdriver.common.keys import Keys

    show(window, scene, view)
    settled(window)
    count = window.script(_NUMBER)
    reached: list[int] = []
    invisible: list[str] = []
    for _ in range(count + 25):
        window.press(Keys.TAB)
        stop, visible, html = window.script(_FOCUSED)
        if stop in reached:
            break
        if stop >= 0:
            reached.append(stop)
            if not visible:
                invisible.append(html)
        if len(reached) == count:
            break
    left = window.script("return [...document.querySelectorAll('[data-stop]')].map(each => each.outerHTML.slice(0, 150))")
    assert [left[stop] for stop in range(count) if stop not in reached] == []
    first = reached.index(0)
    assert reached[first:] + reached[:first] == list(range(count))  # a dialog may begin with its first field
    assert invisible == []


def settled(window: Browser) -> None:
    """Wait until nothing is being read any more."""
    eventually(
        lambda: window.count(".loading") == 0 and "Checking what you may do" not in window.text(), 20, "the end of reading"
    )


@pytest.mark.parametrize("view", [view for view in VIEWS if view.name.startswith("dialog")], ids=lambda view: view.name)
def test_dialogs_keep_the_focus_and_give_it_back(window: Browser, scene: Scene, view: View) -> None:
    from selenium.webdriver.common.keys import Keys

    show(window, scene, view)
    for _ in range(8):
        window.press(Keys.TAB)
        assert window.script(
            "const at = document.activeElement; return at === document.body || Boolean(at.closest('dialog[open]'))"
        )
    window.press(Keys.ESCAPE)
    eventually(lambda: window.count("dialog") == 0)
    focused = "const at = document.activeElement; return at.getAttribute('aria-label') || at.innerText"
    assert window.script(focused).startswith(view.click[0])


def test_the_skip_link_leads_past_the_navigation(window: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    window.script("document.activeElement.blur()")
    window.press(Keys.TAB)
    assert window.script("return document.activeElement.innerText") == "Skip to the content"
    assert window.script("return document.activeElement.getBoundingClientRect().left") >= 0
    window.press(Keys.ENTER)
    assert window.script("return document.activeElement.id") == "main"
    window.press(Keys.TAB)
    assert window.script("return document.activeElement.closest('main') !== null")


def test_arrow_keys_move_through_the_list(window: Browser, scene: Scene) -> None:
    from selenium.webdriver.common.keys import Keys

    show(window, scene, _view("list", "/jobs", "9 TrainJobs", sort="name", ns=""))
    names = window.script("return [...document.querySelectorAll('.job-box [role=row] a[title]')].map(each => each.title)")
    window.script("document.querySelector('.job-box').focus()")
    focused = "return document.activeElement.title"
    for key, at in (
        (Keys.ARROW_DOWN, 0),
        (Keys.ARROW_DOWN, 1),
        (Keys.ARROW_UP, 0),
        (Keys.END, 8),
        (Keys.ARROW_DOWN, 8),
        (Keys.HOME, 0),
    ):
        window.press(key)
        eventually(lambda at=at: window.script(focused) == names[at], 5, f"the focus on {names[at]}")
    window.press(Keys.ENTER)
    window.wait_for("Conditions", names[0])


def test_a_slash_goes_to_the_search_and_is_a_slash_in_it(window: Browser, scene: Scene) -> None:
    show(window, scene, VIEWS[0])
    window.script("document.querySelector('.job-box').focus()")
    window.press("/")
    eventually(lambda: window.script("return document.activeElement.name") == "search")
    window.press("a/b")
    assert window.script("return document.activeElement.value") == "a/b"


def test_every_control_has_a_name_for_screen_readers(window: Browser, scene: Scene) -> None:
    unnamed = []
    for view in VIEWS:
        show(window, scene, view)
        settled(window)
        nodes = window.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        shown = [node for node in nodes if not node.get("ignored") and node["role"]["value"] in _NAMED_ROLES]
        assert shown, view.name
        unnamed += [
            f"{view.name}: {node['role']['value']}" for node in shown if not node.get("name", {}).get("value", "").strip()
        ]
        assert window.script("return document.title").endswith("Trainwright")
    assert unnamed == []


def test_a_training_that_goes_on_is_not_announced_step_by_step(window: Browser, scene: Scene) -> None:
    cluster: PageCluster = scene.cluster
    for route, words in (
        ("/jobs", "9 TrainJobs"),
        (f"/jobs/default/{SECOND}", "Conditions"),
        (f"/jobs/default/{SECOND}/curves", "eval_loss"),
    ):
        show(window, scene, _view("live", route, words))
        settled(window)
        assert "live" in window.script("return [...document.querySelectorAll('[role=status]')].map(each => each.textContent)")
        window.script(_COUNT_ANNOUNCEMENTS)
        for percent in range(52, 60):
            cluster.report(SECOND, percent, loss=f"0.{percent}1", step=str(6 * percent))
        window.wait_for("59 %")
        assert window.script("return window.announced") == [], route


def test_lines_of_a_log_are_not_announced(window: Browser, scene: Scene) -> None:
    show(window, scene, _view("log", f"/jobs/default/{SECOND}/logs", "live", "205 lines"))
    settled(window)
    window.script(_COUNT_ANNOUNCEMENTS)
    for number in range(20):
        scene.cluster.write(f"{SECOND}-node-0-0-x0k9f", f"a new line {number}\n".encode())
    window.wait_for("a new line 19")
    assert window.script("return window.announced") == []


def test_written_text_and_the_dialog_of_a_start_have_no_findings(window: Browser, scene: Scene) -> None:
    show(window, scene, _view("form", "/new", "Started on this page"))
    window.element(".form .actions [aria-disabled]")  # the empty form was checked
    for name, uri in (("dataset_uri", "hf://org/tickets"), ("model_uri", "hf://org/llama-8b")):
        window.type(f"input[name={name}]", uri)
    allowed = ".form .actions .primary:not([aria-disabled])"
    window.element(allowed)
    window.click("YAML")
    window.wait_for("kind: TrainJob", "Download")
    eventually(
        lambda: window.script("return document.activeElement.getAttribute('aria-label')") == "Text", 5, "the focus on the text"
    )
    for width, scheme in ((WIDE, "light"), (NARROW, "dark"), (WIDE, "dark"), (NARROW, "light")):
        window.resize(width, 740)
        window.prefer(scheme)
        assert findings(window) == []
        assert window.script("return document.documentElement.scrollWidth <= innerWidth")
    window.script("arguments[0].scrollIntoView({block: 'center'})", window.element(allowed))
    window.element(allowed).click()
    window.wait_for("Start this fine-tuning?")
    assert findings(window) == []
    assert window.script("return document.documentElement.scrollWidth <= innerWidth")


def test_login_by_token_and_the_end_of_a_session_have_no_findings(tab: Browser, scene: Scene) -> None:
    def connect(token: str) -> JobsClient:
        if token != "right":
            raise Unauthorized("the cluster does not accept this token")
        return JobsClient.of(scene.cluster)

    class Login(TokenLogin):
        """The cluster in memory does not say who has a token."""

    with serving(scene.cluster, login=Login(connect)) as server:
        for width, scheme in ((WIDE, "light"), (NARROW, "dark"), (WIDE, "dark"), (NARROW, "light")):
            tab.resize(width, 740)
            tab.prefer(scheme)
            tab.open(server.url)
            tab.wait_for("Token of the cluster")
            assert findings(tab) == []
            assert tab.script("return document.documentElement.scrollWidth <= innerWidth")
        tab.type("input[name=token]", "wrong")
        tab.click("Log in")
        tab.wait_for("does not accept this token")
        assert findings(tab) == []


def test_a_page_without_a_session_has_no_findings(tab: Browser, scene: Scene, server: PageServer) -> None:
    tab.open(server.url)
    tab.script(FORGET)
    tab.open("about:blank")
    tab.open(f"{server.url}#code=used")
    tab.wait_for("This page is opened by a link that works once")
    assert findings(tab) == []
    server.enter(tab)
    tab.script(f"{FORGET}; location.reload()")
    tab.wait_for("This page is opened by a link that works once")
    assert findings(tab) == []
