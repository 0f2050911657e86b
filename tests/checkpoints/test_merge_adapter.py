"""The merged model is the one that PEFT merges, and what is not certainly understood is refused; its export names what was merged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.optional_packages import require_packages

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.formats.whole_files import INDEX
from trainwright.checkpoints.merged.merged_export import export_merged, merge_adapter, merged_folder
from trainwright.checkpoints.origin import SOURCES, record_inputs, record_origin
from trainwright.checkpoints.publish import ExportOptions, export_checkpoint
from trainwright.checkpoints.registries.export_facts import read_facts
from trainwright.checkpoints.registries.model_card import CardContext, export_page, model_card
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.steps.checkpoints.export import delete_old_exports
from trainwright.steps.requests import ExportCheckpoint, StepRun
from trainwright.steps.workspace_steps import do_step
from trainwright.workspace.layout import PreparedMismatch, prepared_path
from trainwright.workspace.receipt import Receipt, digest_files, read_receipt

require_packages("torch", "transformers", "peft")

pytestmark = pytest.mark.medium
MakeAdapter = Callable[..., Path]


@pytest.fixture(scope="module")
def base(tiny_model: Path) -> Path:
    return tiny_model


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> MakeAdapter:
    """Trains nothing: the weights of the adapter are random."""

    def make(folder: Path = tmp_path / "adapter", base: Path = base, **settings: Any) -> Path:
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        options = {"r": 4, "lora_alpha": 12, "target_modules": "all-linear", "init_lora_weights": False, **settings}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model = get_peft_model(
                AutoModelForCausalLM.from_pretrained(base, dtype="auto"), LoraConfig(task_type="CAUSAL_LM", **options)
            )
        for name, weight in model.named_parameters():
            if "modules_to_save" in name:
                torch.nn.init.normal_(weight.data, std=0.02)
        model.save_pretrained(folder)
        return folder

    return make


def weights_of(model: Any) -> dict[str, Any]:
    return dict(model.state_dict())


@pytest.mark.parametrize(
    ("dtype", "max_shard", "settings"),
    [
        ("float32", "5GB", {}),
        ("float32", "200KB", {"use_rslora": True, "rank_pattern": {"q_proj": 8}}),
        ("bfloat16", "5GB", {"target_modules": ["q_proj", "down_proj"]}),
        ("float16", "5GB", {}),
        ("float32", "5GB", {"target_modules": ["q_proj"], "modules_to_save": ["up_proj"]}),
    ],
)
def test_weights_are_those_that_peft_merges(
    dtype: str, max_shard: str, settings: dict[str, Any], base: Path, adapter: MakeAdapter, tmp_path: Path
) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    own = tmp_path / "base"
    shutil.copytree(base, own)
    (own / "model.safetensors").unlink()
    AutoModelForCausalLM.from_pretrained(base, dtype=getattr(torch, dtype)).save_pretrained(own, max_shard_size=max_shard)
    assert (own / INDEX).exists() is (max_shard != "5GB")
    folder = adapter(base=own, **settings)
    assert merge_adapter(own, folder, tmp_path / "merged") > 0

    plain = weights_of(AutoModelForCausalLM.from_pretrained(own, dtype="auto"))
    ours = weights_of(AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto"))
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(own, dtype="auto"), folder)
    theirs = weights_of(model.merge_and_unload())
    assert ours.keys() == theirs.keys()
    changed = 0
    for name, weight in ours.items():
        assert weight.dtype == getattr(torch, dtype)
        torch.testing.assert_close(weight, theirs[name], msg=lambda text, name=name: f"{name}: {text}")
        changed += not torch.equal(weight, plain[name])
    assert changed == sum(not torch.equal(theirs[name], plain[name]) for name in ours) > 0


def test_transposed_weights_are_added_to_transposed(tmp_path: Path) -> None:
    """Those of GPT-2 are."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

    base, folder = tmp_path / "base", tmp_path / "adapter"
    GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=32, n_positions=16)).save_pretrained(base)
    config = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    assert merge_adapter(base, folder, tmp_path / "merged") == 1
    theirs = weights_of(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder).merge_and_unload())
    for name, weight in weights_of(AutoModelForCausalLM.from_pretrained(tmp_path / "merged")).items():
        torch.testing.assert_close(weight, theirs[name])


@pytest.mark.parametrize(
    ("settings", "change", "reason"),
    [
        ({"use_dora": True}, {}, "belongs to a variant of LoRA|its setting use_dora is 'True'"),
        ({"target_modules": ["embed_tokens"]}, {}, "belongs to a variant of LoRA"),
        ({"init_lora_weights": "olora"}, {}, "init_lora_weights is 'olora', which changes the base model"),
        ({"lora_bias": True}, {}, "its setting lora_bias"),
        ({"trainable_token_indices": [3, 4]}, {}, "its setting trainable_token_indices"),
        ({"alpha_pattern": {"q_proj": 3}}, {}, "its setting alpha_pattern"),
        ({}, {"bias": "all"}, "it trained biases too"),
        ({}, {"peft_type": "IA3"}, "it is of type 'IA3'"),
        ({}, {"lora_alpha": "much"}, "lora_alpha is 'much'"),
        ({}, {"a_setting_of_tomorrow": 1}, "its setting a_setting_of_tomorrow is '1'"),
    ],
)
def test_an_adapter_that_computes_otherwise_is_refused(
    settings: dict[str, Any], change: dict[str, Any], reason: str, base: Path, adapter: MakeAdapter, tmp_path: Path
) -> None:
    folder = adapter(**settings)
    config = folder / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    with pytest.raises(CheckpointError, match=reason) as error:
        merge_adapter(base, folder, tmp_path / "merged")
    assert "Merge it with PEFT" in str(error.value)
    assert not (tmp_path / "merged").exists()


def test_an_adapter_of_another_model_is_refused(base: Path, adapter: MakeAdapter, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

    GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=32)).save_pretrained(tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"the base model has no weight 'model.layers.0.*which the adapter changes"):
        merge_adapter(tmp_path / "other", adapter(), tmp_path / "merged")
    wider = AutoModelForCausalLM.from_pretrained(base).config
    wider.intermediate_size *= 2
    AutoModelForCausalLM.from_config(wider).save_pretrained(tmp_path / "wider")
    with pytest.raises(CheckpointError, match="in the base model"):
        merge_adapter(tmp_path / "wider", adapter(), tmp_path / "merged")


def untied(base: Path, folder: Path) -> Path:
    """The base model with an output layer apart from the embedding."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base, tie_word_embeddings=False)
    model.lm_head.weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


def test_embedding_that_was_resized_for_added_tokens_is_refused(base: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    own, folder = untied(base, tmp_path / "base"), tmp_path / "adapter"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(own), AutoTokenizer.from_pretrained(own)
    tokenizer.add_special_tokens({"eos_token": "<|im_end|>"})
    model.resize_token_embeddings(len(tokenizer))
    get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"the training has resized it, as for added tokens; merge it with PEFT"):
        merge_adapter(own, folder, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_embedding_that_was_trained_is_merged_if_the_output_layer_is_apart(
    base: Path, adapter: MakeAdapter, tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    own = untied(base, tmp_path / "base")
    folder = adapter(base=own, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])
    merge_adapter(own, folder, tmp_path / "merged")
    theirs = weights_of(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(own), folder).merge_and_unload())
    assert_same_weights(weights_of(AutoModelForCausalLM.from_pretrained(tmp_path / "merged")), theirs)


def assert_same_weights(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    import torch

    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name])


def test_merged_model_stops_at_the_end_token_of_the_training(base: Path, adapter: MakeAdapter, tmp_path: Path) -> None:
    """As a model of which all weights were trained with that tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.trainer_utils import align_special_tokens

    own, folder, merged = tmp_path / "base", adapter(), tmp_path / "merged"
    shutil.copytree(base, own)
    (own / "special_tokens_map.json").write_text('{"eos_token": "</s>"}')  # as transformers 4 wrote it
    tokenizer = AutoTokenizer.from_pretrained(own)
    end = tokenizer.convert_ids_to_tokens(40)
    tokenizer.eos_token, tokenizer.pad_token, tokenizer.chat_template = end, end, "{{ messages }}"
    tokenizer.save_pretrained(folder)
    merge_adapter(own, folder, merged)

    whole = AutoModelForCausalLM.from_pretrained(own)
    align_special_tokens(whole, tokenizer)
    model, loaded = AutoModelForCausalLM.from_pretrained(merged), AutoTokenizer.from_pretrained(merged)
    assert model.generation_config.to_dict() == whole.generation_config.to_dict()
    assert model.generation_config.eos_token_id == [40, 1]
    assert (
        (model.config.eos_token_id, model.config.pad_token_id)
        == (whole.config.eos_token_id, whole.config.pad_token_id)
        == (40, 40)
    )
    assert (loaded.eos_token, loaded.pad_token, loaded.chat_template) == (end, end, "{{ messages }}")

    with torch.no_grad():  # the model says the end token whatever was before
        model.get_input_embeddings().weight.zero_()
        model.get_input_embeddings().weight[40] = 1.0
        model.model.norm.weight.fill_(1.0)
    prompt = torch.full((1, 3), 40)
    assert model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False)[0, 3:].tolist() == [
        40
    ]


def test_settings_that_the_training_left_alone_are_those_of_the_base(base: Path, adapter: MakeAdapter, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = adapter()
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    merge_adapter(base, folder, tmp_path / "merged")
    for name in ("config.json", "generation_config.json"):
        assert (tmp_path / "merged" / name).read_bytes() == (base / name).read_bytes()


def test_embedding_that_may_be_tied_to_the_output_layer_is_refused(base: Path, adapter: MakeAdapter, tmp_path: Path) -> None:
    """The merged model would be loaded with one of both weights only."""
    folder = adapter(target_modules=["q_proj"], modules_to_save=["embed_tokens"])
    with pytest.raises(CheckpointError, match=r"embed_tokens\.weight', and config.json does not say"):
        merge_adapter(base, folder, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_weights_that_are_not_finite_are_refused(base: Path, adapter: MakeAdapter, tmp_path: Path) -> None:
    folder = adapter(lora_alpha=1e300)
    with pytest.raises(CheckpointError, match="has values that are not finite in F32"):
        merge_adapter(base, folder, tmp_path / "merged")


@pytest.fixture
def workspace(base: Path, adapter: MakeAdapter, tmp_path: Path) -> Path:
    """A workspace with a prepared model, and with a run that has a checkpoint of an adapter of it."""
    workspace = tmp_path / "workspace"
    scratch = tmp_path / "scratch"
    shutil.copytree(base, scratch)
    files = digest_files(scratch, [path.relative_to(scratch) for path in scratch.rglob("*") if path.is_file()])
    receipt = Receipt(kind="model", source="hf://org/base", revision="", files=files)
    receipt.write(scratch)
    prepared = prepared_path(workspace, "model", receipt.digest)
    shutil.copytree(scratch, prepared)
    output = workspace / "runs" / "tuned" / "output"
    checkpoint = adapter(output / "checkpoint-7")
    (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": 7, "log_history": [{"step": 7, "loss": 2.0}]}))
    (checkpoint / "chat_template.jinja").write_text("{{ messages }}")
    record_origin(output, {"model": receipt.digest, "dataset": f"sha256:{'d' * 64}"})
    return workspace


@pytest.fixture
def exported(workspace: Path, tmp_path: Path) -> tuple[str, str]:
    output = workspace / "runs" / "tuned" / "output"
    found = export_checkpoint(
        output, f"file://{tmp_path}/exports/tuned", source="tuned/job", options=ExportOptions(quiet_seconds=0)
    )
    return found.uri, found.digest


def test_merged_model_is_an_export_beside_the_adapter(
    workspace: Path, exported: tuple[str, str], tmp_path: Path, base: Path
) -> None:
    found = export_merged(workspace, "runs/tuned", *exported)
    assert found.uri == f"{merged_folder(f'file://{tmp_path}/exports/tuned')}/checkpoint-7"
    manifest = open_export(found.uri, found.digest).manifest
    assert manifest.metadata["merged"] == {
        "adapter": exported[1],
        "base_model": open_export(*exported).manifest.metadata["origin"]["model"],
    }
    assert not manifest.resumable
    assert manifest.metrics == {"loss": 2.0}
    paths = {file.path for file in manifest.files}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "trainer_state.json"} <= paths
    assert not [path for path in paths if path.startswith(("adapter_", "."))]
    assert [path.name for path in (workspace / "runs" / "tuned").iterdir() if not path.name.startswith(".")] == ["output"]

    again = export_merged(workspace, "runs/tuned", *exported)
    assert (again.existed, again.digest) == (True, found.digest)


def test_a_damaged_merged_export_is_made_again(workspace: Path, exported: tuple[str, str]) -> None:
    found = export_merged(workspace, "runs/tuned", *exported)
    (weights,) = Path(found.uri.removeprefix("file://")).rglob("model.safetensors")
    weights.write_bytes(b"x")
    again = export_merged(workspace, "runs/tuned", *exported)
    assert verify_export(again.uri, digest=again.digest).metadata["merged"] == found.manifest.metadata["merged"]


def test_step_exports_the_merged_model_on_request(workspace: Path, base: Path, tmp_path: Path) -> None:
    used = {"node_hours": 1.5, "gpu_hours": 12.0, "cost": 30.0, "currency": "USD", "saved_hours": 0.25}
    asked = ExportCheckpoint.parse({"export_uri": f"file://{tmp_path}/out", "merge_adapter": True, "usage": used})
    done = do_step(workspace, asked, StepRun("kfp", "tuned"))
    assert done["merged_uri"] == f"{merged_folder(f'file://{tmp_path}/out/tuned')}/checkpoint-7"
    manifest = open_export(done["merged_uri"], done["merged_digest"]).manifest
    assert (manifest.metadata["merged"]["adapter"], manifest.metadata["owner"]) == (done["digest"], "kfp")
    for uri, digest in ((done["uri"], done["digest"]), (done["merged_uri"], done["merged_digest"])):
        page = export_page(read_facts(open_export(uri, digest)))
        assert "1.50 node-hours, 12.00 GPU-hours, cost 30.00 USD, 0.25 hours saved by resumption" in page
    assert "merged_uri" not in do_step(workspace, asked.having(merge_adapter=False), StepRun("kfp", "tuned"))

    output = workspace / "runs" / "whole" / "output"
    shutil.copytree(base, output / "checkpoint-2")
    (output / "checkpoint-2" / "trainer_state.json").write_text(json.dumps({"global_step": 2}))
    whole = do_step(workspace, asked, StepRun("kfp", "whole"))
    assert (whole["merged_uri"], whole["merged_digest"]) == (whole["uri"], whole["digest"])


def test_old_exports_go_with_what_was_merged_from_them(workspace: Path, exported: tuple[str, str], tmp_path: Path) -> None:
    found = export_merged(workspace, "runs/tuned", *exported)
    root = f"file://{tmp_path}/exports"
    other = (f"{root}/other/checkpoint-1", f"sha256:{'0' * 64}")
    assert set(delete_old_exports(root, [exported, other], keep=1)) == {exported[0], found.uri}


def test_a_base_model_that_has_changed_is_not_merged_into(workspace: Path, exported: tuple[str, str]) -> None:
    (folder,) = (workspace / "models").iterdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(PreparedMismatch):
        export_merged(workspace, "runs/tuned", *exported)
    shutil.rmtree(folder)
    with pytest.raises(PreparedMismatch):
        export_merged(workspace, "runs/tuned", *exported)


def test_cards_say_how_to_load_either(workspace: Path, exported: tuple[str, str], base: Path, tmp_path: Path) -> None:
    """The program of the card runs as it is, on the files of the export."""
    merged = export_merged(workspace, "runs/tuned", *exported)
    losses = []
    for uri, digest in (exported, (merged.uri, merged.digest)):
        facts = read_facts(open_export(uri, digest))
        folder = tmp_path / "loaded" / facts.digest[-8:]
        restore_checkpoint(uri, folder, digest=digest)
        card = model_card(facts, CardContext(repository=str(folder), base_model="org/base"))
        program = card.split("```python\n")[1].split("```")[0]
        names: dict[str, Any] = {}
        exec(program, names)
        losses.append(loss_of(names["model"], base))
        assert "vllm serve" in card
        assert "## How to load it" in export_page(facts)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert "merged from the adapter" in card
    written = open_export(merged.uri, merged.digest).read("README.md") or b""
    assert written.startswith(b"---\nlibrary_name: transformers\n")
    assert b"# tuned, step 7\n\nMerged model" in written


def test_restored_adapter_loads_with_the_base_from_the_hub(
    workspace: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base is in a cache of the Hub at another commit, too, which is not the one that was fetched."""
    from huggingface_hub import constants
    from peft import AutoPeftModelForCausalLM

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    (prepared,) = (workspace / "models").iterdir()
    receipt = read_receipt(prepared)
    assert receipt is not None
    receipt.model_copy(update={"source": "org/base", "revision": "a" * 40}).write(prepared)
    output, cached = workspace / "runs" / "tuned" / "output", tmp_path / "hub" / "models--org--base"
    record_inputs(output, dataset=workspace / "none", model=prepared)
    record = json.loads((output / SOURCES).read_bytes())
    (output / SOURCES).write_text(json.dumps({**record, "model_path": str(base)}))  # where PEFT has found it
    for commit in ("a" * 40, "b" * 40):
        shutil.copytree(base, cached / "snapshots" / commit)
    (cached / "snapshots" / ("b" * 40) / "model.safetensors").write_bytes(b"another")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("b" * 40)

    found = export_checkpoint(
        output, f"file://{tmp_path}/exports/tuned", source="tuned/job", options=ExportOptions(quiet_seconds=0)
    )
    restore_checkpoint(found.uri, tmp_path / "restored")
    config = json.loads((tmp_path / "restored" / "adapter_config.json").read_bytes())
    assert (config["base_model_name_or_path"], config["revision"]) == ("org/base", "a" * 40)
    where = {"cache_dir": str(tmp_path / "hub"), "local_files_only": True}
    loaded = AutoPeftModelForCausalLM.from_pretrained(str(tmp_path / "restored"), **where)
    config |= {"base_model_name_or_path": str(base), "revision": None}
    (tmp_path / "restored" / "adapter_config.json").write_text(json.dumps(config))
    same = AutoPeftModelForCausalLM.from_pretrained(str(tmp_path / "restored"))
    assert loss_of(loaded, base) == pytest.approx(loss_of(same, base), rel=1e-6)


def loss_of(model: Any, base: Path) -> float:
    import torch
    from transformers import AutoTokenizer

    tokens = torch.tensor([AutoTokenizer.from_pretrained(base)("The fog lifts at noon.")["input_ids"]])
    with torch.inference_mode():
        return float(model(input_ids=tokens, labels=tokens).loss)
