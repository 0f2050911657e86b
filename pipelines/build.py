"""Compiles every component and pipeline to YAML: `python -m trainwright.pipelines.build FOLDER`, or `make components`.

The files are what `kfp.components.load_component_from_file` and the upload form of Kubeflow Pipelines take. The variable
TRAINWRIGHT_IMAGE names the image of the steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def compiled_names() -> Iterator[tuple[str, Any]]:
    """Yield the name of each file, without its suffix, and what is compiled to it: components, and pipelines as NAME_pipeline."""
    from trainwright import components, pipelines

    for name in components.__all__:
        if hasattr(getattr(components, name), "component_spec"):
            yield name, getattr(components, name)
    for name in pipelines.__all__:
        yield f"{name}_pipeline", getattr(pipelines, name)


def build(folder: Path) -> list[Path]:
    """Compile everything to `folder`; returns the files. Raises OSError."""
    from kfp import compiler

    from trainwright.pipeline_runs.compiled import CompiledPipeline

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, compilable in compiled_names():
        target = folder / f"{name}.yaml"
        compiler.Compiler().compile(compilable, str(target))
        target.write_text(CompiledPipeline.parse(target.read_text("utf-8"), name).text, "utf-8")
        written.append(target)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile the components and pipelines to YAML.")
    parser.add_argument("folder", type=Path)
    for path in build(parser.parse_args().folder):
        print(path)


if __name__ == "__main__":
    main()
