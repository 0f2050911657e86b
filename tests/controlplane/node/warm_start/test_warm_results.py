"""Trainings that start warm compute what executed ones do, bit for bit: DDP on two nodes, and LoRA with dropout by TRL's script."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest
from support.warm_containers import CODE, Containers, ended, free_port, printed

from trainwright.jobs.trainers.sft import SftSettings
from trainwright.runtimes.launcher_text import launcher_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")]
ROOT = Path(__file__).parents[4]
FUNCTION = """
def fit(steps):
    import hashlib, sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(64, 256)).square().mean().backward()
        optimizer.step()
    weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    print("transformers" in vars(sys)["modules"], hashlib.sha256(weights).hexdigest())
"""
NOTES_WAY = f"""
import runpy, sys
print("started", "warm" if "peft" in vars(sys)["modules"] else "cold", flush=True)
runpy.run_path("{CODE}/orderly_exit.py", run_name="__main__")
"""
LORA = {"steps": 8, "learning_rate": 2e-3, "batch_size": 4, "max_length": 128, "cpu": True, "extra": ["--lora_dropout", "0.2"]}


def test_ddp_on_two_nodes_has_the_same_weights(containers: Containers) -> None:
    argv = [
        "python3",
        "-c",
        launcher_text(),
        "--function",
        "fit",
        "--source",
        FUNCTION,
        "--arguments",
        '{"steps": 30}',
        "--",
        "torchrun",
    ]
    lines = {}
    for way in ("warm", "cold"):
        job = {"PET_NNODES": "2", "PET_MASTER_PORT": str(free_port())}
        runs = [containers.start(argv, {**job, "PET_NODE_RANK": rank}, warm=way == "warm") for rank in "01"]
        assert [ended(run) for run in runs] == [0, 0], "".join(map(printed, runs))
        lines[way] = [printed(run).split() for run in runs]
    assert "True" in {line[0] for line in lines["warm"]}, "on a busy machine one of them may start cold"
    assert {line[0] for line in lines["cold"]} == {"False"}
    assert len({line[1] for way in lines.values() for line in way}) == 1


def test_lora_by_trl_has_the_same_weights(containers: Containers, tiny_model: Path) -> None:
    pytest.importorskip("trl")
    shutil.copytree(tiny_model, containers.code / "model")
    shutil.copy(ROOT / "trainwright/runtimes/orderly_exit.py", containers.code)
    rows = [{"prompt": f"Question {number}?", "completion": f" Answer {number % 3}."} for number in range(40)]
    (containers.code / "dataset").mkdir()
    (containers.code / "dataset/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (containers.code / "notes_way.py").write_text(NOTES_WAY, "utf-8")
    found = set()
    for way in ("warm", "cold"):
        places = {"model_name_or_path": "model", "dataset_name": "dataset", "output_dir": way}
        words = [word for name, place in places.items() for word in (f"--{name}", f"{CODE}/{place}")]
        argv = ["torchrun", "notes_way.py", "trl.scripts.sft", *words, "--report_to", "none"]
        run = containers.start([*argv, *SftSettings.model_validate(LORA).arguments()], warm=way == "warm")
        assert ended(run) == 0, printed(run)
        assert f"started {way}" in printed(run)
        assert "train_loss" in printed(run)
        found.add(hashlib.sha256((containers.code / way / "adapter_model.safetensors").read_bytes()).hexdigest())
    assert len(found) == 1
