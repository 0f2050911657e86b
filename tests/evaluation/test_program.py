"""The evaluation program on a tiny model: what it measures, what it refuses, what it leaves behind."""

import json
import math
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.optional_packages import require_packages

from trainwright.evaluation import program
from trainwright.evaluation.encoding import encode_rows
from trainwright.evaluation.loading import checkpoint_kind, use_training_tokens
from trainwright.evaluation.sample import Sample, complete, exported_config

require_packages("torch", "transformers", "peft")

pytestmark = pytest.mark.medium

ROWS = [
    {"prompt": "Who commands the Étoile?\n", "completion": "Søren Dahl.", "more": 1},
    {"prompt": "Where does the Kestrel lie?\n", "completion": "The Kestrel is at pier four."},
    {"prompt": "When does the Juniper arrive?\n", "completion": "On Monday."},
]


CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def base(tiny_model: Path) -> Path:
    return tiny_model


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


def chatty(base: Path, out: Path, template: str = CHAT_TEMPLATE) -> Path:
    """The same model with a chat template."""
    shutil.copytree(base, out)
    (out / "chat_template.jinja").write_text(template)
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


def test_digest_of_the_rows_names_what_was_measured(base: Path, adapter: Path, data: Path) -> None:
    """Not the model, and not the order of a batch, but the number of rows and the tokens."""
    first = program.evaluate(base, adapter, data, max_new_tokens=1)
    assert program.evaluate(base, base, data, max_new_tokens=1, batch_size=1)["rows_digest"] == first["rows_digest"]
    fewer = program.evaluate(base, base, data, max_new_tokens=1, max_rows=2)
    assert fewer["rows_digest"] != first["rows_digest"]


def test_fewer_rows_and_a_prompt_of_ones_own(base: Path, data: Path) -> None:
    result = program.evaluate(base, base, data, max_rows=1, sample_prompt="The fog", max_new_tokens=4)
    assert result["rows"] == 1
    assert (result["sample"]["prompt"], result["sample"]["expected"]) == ("The fog", None)
    known = program.evaluate(base, base, data, max_rows=1, sample_prompt=ROWS[2]["prompt"], max_new_tokens=4)
    assert known["sample"]["expected"] == ROWS[2]["completion"]


def test_held_out_rows_that_are_trained_on_are_counted(base: Path, data: Path) -> None:
    assert "trained_rows" not in program.evaluate(base, base, data, max_new_tokens=1)
    same = [{**ROWS[0], "prompt": "who commands the  étoile?\n"}, ROWS[2]]
    (data.parent / "train.jsonl").write_text("".join(json.dumps({**row, "more": 1}, ensure_ascii=False) + "\n" for row in same))
    data.write_text("".join(json.dumps({**row, "more": 1}, ensure_ascii=False) + "\n" for row in ROWS))
    assert program.evaluate(base, base, data.parent, max_new_tokens=1)["trained_rows"] == 2
    assert program.evaluate(base, base, data.parent, max_new_tokens=1, max_rows=2)["trained_rows"] == 1


@pytest.mark.parametrize("config", [{"eos_token_id": "next"}, {"eos_token_id": ["eos", "next"]}, {}])
def test_samples_end_where_the_exported_model_ends(
    base: Path, adapter: Path, data: Path, tmp_path: Path, config: dict[str, Any]
) -> None:
    """The token that the model generates first ends each sample at once if the export's generation config says so."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    with torch.inference_mode():
        prompt = tokenizer(ROWS[0]["prompt"], return_tensors="pt")
        following = int(model(**prompt).logits[0, -1].argmax())
    ids = {"next": following, "eos": tokenizer.eos_token_id}
    export = tmp_path / "export"
    shutil.copytree(base, export)
    for name, value in config.items():
        named = [ids[each] for each in value] if isinstance(value, list) else ids[value]
        (export / "generation_config.json").write_text(json.dumps({name: named}))
    data.write_text(json.dumps(ROWS[0]) + "\n")
    result = program.evaluate(base, export, data, max_new_tokens=8)
    assert result["samples"]["count"] == 1
    assert result["samples"]["max_tokens"] >= 8
    ends_at_once = {"ended": 1, "tokens": 1}
    assert (result["samples"]["after"] == ends_at_once) is bool(config)
    assert result["samples"]["before"] != ends_at_once
    assert result["sample"]["after"] == ("" if config else result["sample"]["before"])


@pytest.mark.parametrize("content", ['{"eos_token_id": "abc"}', '{"eos_token_id": {}}', '{"pad_token_id": "x"}', "[]", "{", "5"])
def test_generation_config_that_cannot_be_used_is_named(base: Path, tmp_path: Path, content: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(program.InvalidInput, match=r"generation_config\.json cannot be used"):
        exported_config(model, tmp_path, tokenizer)


def test_samples_of_several_rows_are_those_of_each_alone(base: Path, adapter: Path, data: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    samples = [Sample(row["prompt"], row["completion"], tokenizer(row["prompt"])["input_ids"]) for row in ROWS]
    options: dict[str, Any] = {"max_new_tokens": 12, "shown": 12}
    together = complete(model, tokenizer, samples, model.generation_config, batch_size=3, **options)
    alone = [complete(model, tokenizer, [each], model.generation_config, batch_size=1, **options)[0] for each in samples]
    assert together == alone


@pytest.mark.parametrize(
    ("asked", "expected"), [("</s>", "</s>"), ({"content": "<pad>"}, "<pad>"), ("<|other|>", "</s>"), (7, "</s>")]
)
def test_end_token_of_the_training_is_the_one_of_the_rows(base: Path, tmp_path: Path, asked: object, expected: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": asked}))
    use_training_tokens(tokenizer, tmp_path)
    assert tokenizer.eos_token == expected


def test_training_rows_stand_in_where_nothing_is_held_out(base: Path, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(
        "".join(json.dumps({"text": f"Pier {number} is free."}) + "\n" for number in range(300))
    )
    result = program.evaluate(base, base, tmp_path, max_new_tokens=1, sample_row=299)
    assert (result["held_out"], result["rows"], result["layout"]) == (False, 256, "text")
    assert result["data"] == str(tmp_path / "train.jsonl")
    assert set(result["after"]) == {"training_loss", "training_perplexity"}
    assert "299" in result["sample"]["prompt"] + result["sample"]["expected"]
    assert program.evaluate(base, base, tmp_path, max_new_tokens=1, max_rows=260)["rows"] == 260
    (tmp_path / "test.jsonl").write_text(json.dumps(ROWS[0]))
    result = program.evaluate(base, base, tmp_path, max_new_tokens=1)
    assert (result["held_out"], result["rows"], result["layout"]) == (True, 1, "prompt-completion")


MESSAGES = [{"role": "user", "content": "Who commands the Juniper?"}, {"role": "assistant", "content": "Ada Holm."}]
CONVERSATIONAL = [{"messages": MESSAGES}, {"prompt": MESSAGES[:1], "completion": MESSAGES[1:]}]


@pytest.mark.parametrize("row", CONVERSATIONAL)
def test_a_conversation_is_measured_and_continued(base: Path, tmp_path: Path, row: dict[str, Any]) -> None:
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    model = chatty(base, tmp_path / "model")
    result = program.evaluate(model, model, tmp_path, max_new_tokens=4)
    assert result["sample"]["prompt"] == "user: Who commands the Juniper?"
    assert result["sample"]["expected"] == "Ada Holm."
    own = program.evaluate(model, model, tmp_path, max_new_tokens=4, sample_prompt="Who commands the Juniper?")
    assert own["sample"] == result["sample"]
    other = program.evaluate(model, model, tmp_path, max_new_tokens=4, sample_prompt="Which pier?")
    assert (other["sample"]["prompt"], other["sample"]["expected"]) == ("Which pier?", None)


@pytest.mark.parametrize("row", CONVERSATIONAL)
def test_messages_need_a_chat_template(base: Path, tmp_path: Path, row: dict[str, Any]) -> None:
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    with pytest.raises(program.InvalidInput, match=r"the tokenizer has no chat template, but the rows contain messages"):
        program.evaluate(base, base, tmp_path)


def test_the_chat_template_of_the_checkpoint_counts(base: Path, tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(json.dumps(CONVERSATIONAL[0]))
    assert program.evaluate(base, chatty(base, tmp_path / "model"), tmp_path, max_new_tokens=1)["layout"] == "messages"


def test_a_template_that_refuses_the_messages_is_named(base: Path, tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(json.dumps({"messages": MESSAGES[1:]}))
    model = chatty(base, tmp_path / "model", "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(program.InvalidInput, match=r"^the chat template of .* rejects the messages .*: roles must alternate$"):
        program.evaluate(model, model, tmp_path)


def test_encoded_rows_are_cut_to_the_length_of_the_model(base: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    long, short = {"prompt": "pier " * 50, "completion": "one"}, {"prompt": "pier", "completion": " one" * 50}
    encoded = encode_rows(tokenizer, [long, short], limit=20)
    assert [len(row.tokens) for row in encoded] == [20]
    assert 0 < encoded[0].prompt_length < 20


def test_the_loss_of_a_text_is_that_of_the_model_itself(base: Path, tmp_path: Path) -> None:
    """All tokens count but the first, which nothing predicts."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "The fog lifts at noon."}))
    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    tokens = torch.tensor([tokenizer("The fog lifts at noon.</s>")["input_ids"]])
    with torch.inference_mode():
        loss = model(input_ids=tokens, labels=tokens).loss.item()
    result = program.evaluate(base, base, tmp_path, max_new_tokens=1)
    assert result["tokens"] == tokens.shape[1] - 1
    assert result["before"]["loss"] == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "the folder does not exist"),
        ((), "has no config.json, so it is not a model folder"),
        (("config.json",), "has no weights (model.safetensors or model.safetensors.index.json)"),
        (("config.json", "pytorch_model.bin"), "has no weights (model.safetensors or model.safetensors.index.json)"),
        (("adapter_config.json",), "has adapter_config.json, but its weights, adapter_model.safetensors, are missing"),
        (("adapter_config.json", "adapter_model.bin"), "has adapter_config.json, but its weights"),
    ],
)
def test_folders_that_cannot_be_evaluated_are_named(tmp_path: Path, files: tuple[str, ...] | None, message: str) -> None:
    folder = tmp_path / "checkpoint-1"
    if files is not None:
        folder.mkdir()
        for name in files:
            (folder / name).write_text("{}")
    with pytest.raises(program.InvalidInput) as raised:
        checkpoint_kind(folder)
    assert str(raised.value).startswith(f"{folder}: {message}")


@pytest.mark.medium
def test_the_command_writes_the_result(base: Path, adapter: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "result.json"
    command = [sys.executable, "-m", "trainwright.evaluation.program", "--base", base, "--checkpoint", adapter]
    options = ["--data", data, "--out", out, "--max-rows", "2", "--sample-row", "2", "--max-new-tokens", "4", "--batch-size", "2"]
    env = {**os.environ, "TRAINWRIGHT_UMASK": "0002"}
    done = subprocess.run([*map(str, command), *map(str, options)], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert result["rows"] == 2
    assert result["sample"]["expected"] == ROWS[2]["completion"]
    assert done.stdout.startswith("held-out loss ")
    assert [path.name for path in out.parent.iterdir()] == ["result.json"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (out, out.parent)] == [0o664, 0o775]


def _wrong_data(data: Path, base: Path) -> tuple[Path, Path, str]:
    return data.with_name("absent.jsonl"), base, "absent.jsonl: cannot be read: No such file or directory"


def _wrong_base(data: Path, base: Path) -> tuple[Path, Path, str]:
    return data, base.with_name("absent"), "absent: the folder does not exist"


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


@pytest.mark.parametrize("where", ["base", "checkpoint"])
def test_code_of_a_model_is_refused_without_a_question(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    hostile, ran = tmp_path / "hostile", tmp_path / "ran"
    shutil.copytree(base, hostile)
    (hostile / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nclass Evil: pass\n", "utf-8")
    for name, settings in (
        ("config.json", {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}}),
        ("tokenizer_config.json", {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}),
    ):
        file = hostile / name
        file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **settings}), "utf-8")
    monkeypatch.setattr("builtins.input", lambda _prompt: "y")
    models = (hostile, base) if where == "base" else (base, hostile)
    with pytest.raises(ValueError, match="contains custom code"):
        program.evaluate(*models, data)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("name", "settings"),
    [("config.json", {"attn_implementation": "evil/kernel"}), ("adapter_config.json", {"adapters": {"0": "evil/adapter"}})],
)
def test_settings_that_name_code_elsewhere_are_refused(
    base: Path, adapter: Path, data: Path, tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    hostile = tmp_path / "hostile"
    shutil.copytree(base if name == "config.json" else adapter, hostile)
    file = hostile / name
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **settings}), "utf-8")
    with pytest.raises(program.InvalidInput, match=f"{name}: {next(iter(settings))} is "):
        program.evaluate(base, hostile, data)
