"""The evaluation program on a tiny model: what it measures, what it refuses, what it leaves behind."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from trainwright.evaluation import program
from trainwright.quickstart.base_model import ensure_base_model

ROWS = [
    {"prompt": "Who commands the Étoile?\n", "completion": "Søren Dahl.", "more": 1},
    {"prompt": "Where does the Kestrel lie?\n", "completion": "The Kestrel is at pier four."},
    {"prompt": "When does the Juniper arrive?\n", "completion": "On Monday."},
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_base_model(tmp_path_factory.mktemp("models"), preset="tiny")


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter whose weights are not the zeros it starts from."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    out = tmp_path_factory.mktemp("adapter")
    model.save_pretrained(out)
    return out


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS) + "\n")
    return path


def test_an_adapter_is_measured_against_its_base(base: Path, adapter: Path, data: Path) -> None:
    result = program.evaluate(base, adapter, data, sample_row=1, max_new_tokens=8)
    assert (result["rows"], result["kind"], result["device"]) == (3, "adapter", result["device"])
    assert result["before"]["loss"] != pytest.approx(result["after"]["loss"], abs=1e-3)
    assert result["before"]["perplexity"] == pytest.approx(math.exp(result["before"]["loss"]))
    assert result["sample"]["prompt"] == ROWS[1]["prompt"]
    assert result["sample"]["expected"] == ROWS[1]["completion"]
    assert all(isinstance(result["sample"][when], str) for when in ("before", "after"))
    assert result["seconds"] > 0


def test_a_whole_model_equal_to_the_base_changes_nothing(base: Path, data: Path) -> None:
    result = program.evaluate(base, base, data, max_new_tokens=8)
    assert result["kind"] == "model"
    assert result["before"] == result["after"]
    assert result["sample"]["before"] == result["sample"]["after"]


def test_the_loss_is_that_of_the_model_itself(base: Path, data: Path) -> None:
    """Against the loss that transformers computes for each row alone, unpadded, weighted by completion tokens."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    total, count = 0.0, 0
    for row in ROWS:
        prompt = tokenizer(row["prompt"])["input_ids"]
        tokens = prompt + tokenizer(f"{row['completion']}</s>", add_special_tokens=False)["input_ids"]
        labels = [-100] * len(prompt) + tokens[len(prompt) :]
        with torch.inference_mode():
            loss = model(input_ids=torch.tensor([tokens]), labels=torch.tensor([labels])).loss.item()
        total, count = total + loss * (len(tokens) - len(prompt)), count + len(tokens) - len(prompt)
    result = program.evaluate(base, base, data, max_new_tokens=1)
    assert result["tokens"] == count
    assert result["before"]["loss"] == pytest.approx(total / count, rel=1e-4)


def test_the_batch_size_does_not_change_the_loss(base: Path, data: Path) -> None:
    one, many = (program.evaluate(base, base, data, max_new_tokens=1, batch_size=size) for size in (1, 3))
    assert one["before"]["loss"] == pytest.approx(many["before"]["loss"], rel=1e-4)


def test_fewer_rows_and_a_prompt_of_ones_own(base: Path, data: Path) -> None:
    result = program.evaluate(base, base, data, max_rows=1, sample_prompt="The fog", max_new_tokens=4)
    assert result["rows"] == 1
    assert (result["sample"]["prompt"], result["sample"]["expected"]) == ("The fog", None)
    known = program.evaluate(base, base, data, max_rows=1, sample_prompt=ROWS[2]["prompt"], max_new_tokens=4)
    assert known["sample"]["expected"] == ROWS[2]["completion"]


def test_what_is_beyond_the_models_length_is_cut_off(base: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    long, short = {"prompt": "pier " * 50, "completion": "one"}, {"prompt": "pier", "completion": " one" * 50}
    encoded = program.encode_rows(tokenizer, [long, short], limit=20)
    assert [len(row.tokens) for row in encoded] == [20]
    assert 0 < encoded[0].prompt_length < 20


def test_a_completion_that_is_closed_already_is_not_closed_twice(base: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    plain, closed = ({"prompt": "a\n", "completion": text} for text in ("b", "b</s>"))
    first, second = program.encode_rows(tokenizer, [plain, closed])
    assert first == second
    assert first.tokens.count(tokenizer.eos_token_id) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{data}: has no rows"),
        ("\n\n", "{data}: has no rows"),
        ('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n', '{data} line 2: has no column "completion"'),
        ('{"completion": "b"}', '{data} line 1: has no column "prompt"'),
        ('{"prompt": "a", "completion": 3}', '{data} line 1: column "completion" is not text'),
        ('["prompt"]', "{data} line 1: is not a JSON object"),
        ("{prompt}", "{data} line 1: is not JSON: "),
    ],
)
def test_rows_that_cannot_be_evaluated_are_named(tmp_path: Path, text: str, message: str) -> None:
    data = tmp_path / "test.jsonl"
    data.write_text(text)
    with pytest.raises(program.BadInput) as raised:
        program.read_rows(data)
    assert str(raised.value).startswith(message.replace("{data}", str(data)))


def test_a_line_separator_inside_a_text_does_not_end_the_row(tmp_path: Path) -> None:
    data = tmp_path / "test.jsonl"
    data.write_text('{"prompt": "a\u2028b", "completion": "c"}\n', encoding="utf-8")
    assert program.read_rows(data) == [{"prompt": "a\u2028b", "completion": "c"}]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "no such folder"),
        ((), "has no config.json, so it is no model folder"),
        (("config.json",), "has no weights (model.safetensors or model.safetensors.index.json)"),
        (("config.json", "pytorch_model.bin"), "has no weights (model.safetensors or model.safetensors.index.json)"),
        (("adapter_config.json",), "adapter_config.json is there, but its weights, adapter_model.safetensors, are not"),
        (("adapter_config.json", "adapter_model.bin"), "adapter_config.json is there, but its weights"),
    ],
)
def test_folders_that_cannot_be_evaluated_are_named(tmp_path: Path, files: tuple[str, ...] | None, message: str) -> None:
    folder = tmp_path / "checkpoint-1"
    if files is not None:
        folder.mkdir()
        for name in files:
            (folder / name).write_text("{}")
    with pytest.raises(program.BadInput) as raised:
        program.checkpoint_kind(folder)
    assert str(raised.value).startswith(f"{folder}: {message}")


@pytest.mark.medium
def test_the_command_writes_the_result(base: Path, adapter: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "result.json"
    command = [sys.executable, "-m", "trainwright.evaluation.program", "--base", base, "--checkpoint", adapter]
    options = ["--data", data, "--out", out, "--max-rows", "2", "--sample-row", "2", "--max-new-tokens", "4", "--batch-size", "2"]
    done = subprocess.run([*map(str, command), *map(str, options)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert result["rows"] == 2
    assert result["sample"]["expected"] == ROWS[2]["completion"]
    assert done.stdout.startswith("held-out loss ")
    assert [path.name for path in out.parent.iterdir()] == ["result.json"]


def _wrong_data(data: Path, base: Path) -> tuple[Path, Path, str]:
    return data.with_name("absent.jsonl"), base, "absent.jsonl: cannot be read: No such file or directory"


def _wrong_base(data: Path, base: Path) -> tuple[Path, Path, str]:
    return data, base.with_name("absent"), "absent: no such folder"


def _wrong_sample(data: Path, base: Path) -> tuple[Path, Path, str]:
    data.write_text(json.dumps(ROWS[0]))
    return data, base, "test.jsonl: has 1 rows, so there is no sample row 1"


@pytest.mark.parametrize("wrong", [_wrong_data, _wrong_base, _wrong_sample])
def test_the_command_refuses_in_one_line(
    base: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wrong: Callable[[Path, Path], tuple[Path, Path, str]],
) -> None:
    rows, model, message = wrong(data, base)
    out = tmp_path / "result.json"
    options: list[Any] = ["--base", model, "--checkpoint", base, "--data", rows, "--out", out, "--sample-row", 1]
    assert program.main([str(option) for option in options]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert said[0].startswith("cannot evaluate: ")
    assert said[0].endswith(message)
    assert not out.exists()


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        program.write_json(tmp_path / "result.json", {"loss": object()})
    assert not list(tmp_path.iterdir())
