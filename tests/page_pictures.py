"""Takes the pictures of the page in docs/pictures: `make pictures`. They show records that are written for them, and no real job."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from support.browser import Browser, browser
from support.page_scene import DONE, FIRST, SECOND, afternoon
from support.page_server import serving

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
MOST_BYTES = 150_000
WIDE, NARROW = (1200, 760), (360, 700)


@dataclass(frozen=True)
class Picture:
    """A view, when it shows these words, after `prepare`."""

    name: str
    route: str
    words: tuple[str, ...]
    size: tuple[int, int] = WIDE
    scheme: str = "light"
    prepare: Callable[[Browser], None] = lambda window: None


def compare(window: Browser) -> None:
    """Lay the other run over the curves."""
    window.type("input[name=overlay]", f"default/{SECOND}")
    window.element(f"[aria-label='Remove default/{SECOND}']")
    window.script("document.querySelector('.tabs').scrollIntoView(); document.activeElement.blur()")


def filter_objects(window: Browser) -> None:
    window.script("document.querySelector('.tabs').scrollIntoView()")


def search(window: Browser) -> None:
    window.script("document.querySelector('.tabs').scrollIntoView()")
    window.type(".search-field", "eval_loss")
    window.wait_for(" of 7 lines")
    window.script("document.activeElement.blur()")


_JOB = f"/jobs/default/{FIRST}"
PICTURES = [
    Picture("list", "/jobs", ("9 TrainJobs",)),
    Picture("job", _JOB, ("Timeline", "Started container node")),
    Picture("curves-dark", f"{_JOB}/curves", ("grad_norm as a table",), scheme="dark", prepare=compare),
    Picture("logs", f"{_JOB}/logs", ("205 lines", "live"), prepare=search),
    Picture("objects", f"{_JOB}/objects", ("As built", "torch", "In the cluster now"), prepare=filter_objects),
    Picture("run", f"/runs/0%3Adefault%2Fdata/{DONE}", ("Sample: prompt", "Base model")),
    Picture("models", "/models", ("champion", "2 runs")),
    Picture("list-narrow", "/jobs", ("9 TrainJobs",), size=NARROW),
]


def main(folder: Path = FOLDER) -> int:
    """Take all pictures; returns 1 if one is too large."""
    folder.mkdir(parents=True, exist_ok=True)
    records = Path(tempfile.gettempdir()) / "support-team"  # its name is in the pictures
    records.mkdir()
    try:
        with afternoon(records) as scene, serving(scene.cluster, scene.page) as server, browser() as window:
            server.enter(window)
            sizes = {picture.name: take(window, picture, folder) for picture in PICTURES}
    finally:
        shutil.rmtree(records)
    for name, size in sizes.items():
        print(f"{name}.png: {size / 1000:.0f} kB")
    return int(max(sizes.values()) > MOST_BYTES)


def take(window: Browser, picture: Picture, folder: Path) -> int:
    """Take one picture; returns its size in bytes."""
    window.resize(*picture.size)
    window.prefer(picture.scheme)
    window.script("location.hash = '#/nothing'")
    window.wait_for("There is no such view")
    window.script("location.hash = arguments[0]", f"#{picture.route}")
    window.wait_for(*picture.words)
    picture.prepare(window)
    window.asynchronous("requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(arguments[0], 300)))")
    content = smaller(window.driver.get_screenshot_as_png())
    (folder / f"{picture.name}.png").write_bytes(content)
    return len(content)


def smaller(content: bytes) -> bytes:
    """Return a picture with 256 colours, if Pillow is installed."""
    try:
        from PIL import Image
    except ImportError:
        return content
    written = BytesIO()
    with Image.open(BytesIO(content)) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    return min(content, written.getvalue(), key=len)


if __name__ == "__main__":
    sys.exit(main())
