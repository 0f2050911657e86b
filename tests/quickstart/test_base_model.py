"""The base model's folder is whole, loads, can be told apart by what it is made of, and is built once."""

from pathlib import Path

import pytest
from support.optional_packages import require_packages

from trainwright.initializers.layouts import alpaca_prompt
from trainwright.quickstart import base_model

require_packages("torch", "transformers")
pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base_model.ensure_base_model(tmp_path_factory.mktemp("models"), preset="tiny")


def test_the_folder_is_a_model_folder(built: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= {p.name for p in built.iterdir()}
    model = AutoModelForCausalLM.from_pretrained(built, use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(built)
    assert model.num_parameters() < 1_000_000
    assert len(tokenizer) == model.config.vocab_size
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<s>", "</s>", "<pad>")
    assert tokenizer.chat_template is None
    text = "Søren Dahl sails the Étoile.\n"
    tokens = tokenizer(text)["input_ids"]
    assert tokens[0] == tokenizer.bos_token_id
    assert tokenizer.decode(tokens, skip_special_tokens=True) == text


def test_headings_of_prompts_are_single_tokens(built: Path) -> None:
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(built)(alpaca_prompt("x"))["input_ids"]
    assert len(tokens) == 12, "with one for each letter, a row of the dataset has 14 tokens more"


def test_nothing_else_is_left_behind(built: Path) -> None:
    assert [path.name for path in built.parent.iterdir()] == [built.name]


def test_base_model_is_built_only_once(built: Path) -> None:
    before = (built / "model.safetensors").stat()
    assert base_model.ensure_base_model(built.parent, preset="tiny") == built
    assert (built / "model.safetensors").stat() == before


def test_an_existing_folder_is_not_written_over(built: Path) -> None:
    with pytest.raises(FileExistsError, match=built.name):
        base_model.build_base_model(built, preset="tiny")


def test_pretraining_lowers_the_loss_and_equal_seeds_make_equal_weights(built: Path, tmp_path: Path) -> None:
    first = base_model.build_base_model(tmp_path / "one-step", preset="tiny", steps=1)
    last = base_model.build_base_model(tmp_path / "again", preset="tiny")
    assert last < first - 0.5
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (built / "model.safetensors").read_bytes()


def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("torch.optim.AdamW", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        base_model.build_base_model(tmp_path / "model", preset="tiny")
    assert not list(tmp_path.iterdir())


def test_an_unknown_preset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'huge' is not one of quickstart, tiny"):
        base_model.build_base_model(tmp_path / "model", preset="huge")


def test_the_fingerprint_follows_all_that_the_model_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {
        base_model.fingerprint(),
        base_model.fingerprint(preset="tiny"),
        base_model.fingerprint(seed=12),
        base_model.fingerprint(steps=3),
    }
    for name in (base_model.CORPUS_FILE, base_model.INSTRUCTIONS_FILE):
        (tmp_path / name).write_text("{}\n")
    monkeypatch.setattr(base_model, "DATA", tmp_path)
    seen.add(base_model.fingerprint())
    assert len(seen) == 5
    assert all(len(digest) == 12 for digest in seen)
