"""A cluster without prepared environments: the image of PyTorch's runtimes runs in the environment of these tests, as it is.

For tests whose programs are shell scripts, where torch may not be installed: they would wait for an installation.
"""

from __future__ import annotations

import sys

import yaml

from trainwright.embedded.home import Home


def home_without_environments(home: Home) -> Home:
    home.path.mkdir(parents=True, exist_ok=True)
    entry = {"image": "pytorch/pytorch", "environment": sys.prefix}
    (home.path / "images.yaml").write_text(yaml.safe_dump({"images": [entry]}), "utf-8")
    return home
