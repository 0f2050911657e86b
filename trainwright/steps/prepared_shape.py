"""The sizes of a prepared model, for the estimate of the training's memory: only the step that prepares it has its files."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from trainwright.checkpoints.formats.whole_files import count_parameters
from trainwright.jobs.request.model_shape import ModelShape
from trainwright.storage.errors import StorageError
from trainwright.storage.plain_files import open_plain
from trainwright.text.text_input import Unreadable, read_json

_CONFIG, _MOST_BYTES = "config.json", 4 * 2**20
log = logging.getLogger(__name__)


def prepared_shape(folder: Path) -> dict[str, Any]:
    """Return the sizes of the model in a folder, for the setting `model_shape`; empty for one that is no decoder of known sizes.

    The parameters are counted in the headers of its safetensors files.
    """
    try:
        with open_plain(folder / _CONFIG) as file:
            config = read_json(file.read(_MOST_BYTES).decode("utf-8"))
        shape = ModelShape.of_config(config, _parameters(folder)) if isinstance(config, dict) else None
    except (OSError, StorageError, Unreadable, ValueError, KeyError, TypeError) as error:  # an estimate is worth no failure
        log.warning("event=model_shape_not_read folder=%s error=%s", folder.name, error)
        return {}
    return shape.as_json() if shape is not None else {}


def _parameters(folder: Path) -> int:
    return sum(count_parameters(file) for file in sorted(folder.glob("*.safetensors")))
