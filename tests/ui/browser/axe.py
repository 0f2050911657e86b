"""Runs axe-core, the checker of accessibility rules, in a browser: setup.py brings it, as package-lock.json says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.browser import Browser

_SOURCE = Path(__file__).with_name("axe.min.js")
_RUN = """
const [rules, done] = arguments;
const start = (node) => node.html.slice(0, 200);
const options = {resultTypes: ["violations"], ...(rules.length ? {runOnly: {type: "rule", values: rules}} : {})};
axe.run(document, options).then(
  (found) => done(found.violations.map((each) => [each.impact, each.id, each.help, each.nodes.slice(0, 5).map(start)])),
  (error) => done([["critical", "axe", String(error), []]]),
);
"""


def findings(window: Browser, *rules: str) -> list[str]:
    """Return what is wrong with the page as it is shown, by all rules or by these, one line each."""
    if window.script("return typeof axe === 'undefined'"):
        window.script(_SOURCE.read_text("utf-8"))
    found: list[tuple[str, str, str, list[Any]]] = window.asynchronous(_RUN, list(rules))
    return [f"{impact}: {rule}: {text}: {nodes}" for impact, rule, text, nodes in found]
