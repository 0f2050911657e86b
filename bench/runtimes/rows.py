"""The rows of `make runtimes`: what is trained on which runtime, as options of `trainwright submit`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

HOSTFILE = "/etc/mpi/hostfile"
ELASTIC = (
    "torchrun --nnodes=1:2 --nproc-per-node=1 --max-restarts=3 --rdzv-backend=c10d --rdzv-id=elastic "
    "--rdzv-endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT) "
    "--rdzv-conf=join_timeout=60,last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3 torch_elastic.py {data} 40"
)
_MLX_LM = (
    f"mpirun --hostfile {HOSTFILE} python3 -m mlx_lm lora --train --model {{model}} --data {{dataset}} --iters 30 --batch-size 4 "
    "--num-layers 2 --learning-rate 1e-3 --steps-per-report 5 --adapter-path {data}/adapter"
)
_LLAMA = ("model._component_=torchtune.models.llama3_2.llama3_2", "model.vocab_size=128256")
_LLAMA_31 = ("model._component_=torchtune.models.llama3_1.llama3_1", "model.vocab_size=128256")
_QWEN = ("model._component_=torchtune.models.qwen2.qwen2", "model.vocab_size=151936", "model.tie_word_embeddings=True")
_SMALL = ("num_layers=2", "num_heads=4", "num_kv_heads=2", "embed_dim=256", "max_seq_len=256", "intermediate_dim=512")
_LORA = ("lora_attn_modules=[q_proj,v_proj]", "apply_lora_to_mlp=True", "lora_rank=8", "lora_alpha=64")
_STEPS = (
    "dataset=torchtune.datasets.instruct_dataset",
    "dataset.source=parquet",
    "dataset.data_dir=/workspace/dataset/data",
    "dataset.split=train",
    "batch_size=2",
    "gradient_accumulation_steps=1",
    "optimizer.lr=1e-3",
    "max_steps_per_epoch=4",
    "checkpointer.checkpoint_files=[model.safetensors]",
    "metric_logger._component_=torchtune.training.metric_logging.StdoutLogger",
)


@dataclass(frozen=True)
class Row:
    """A training. `options` are those of `trainwright submit`; `{data}` in them is a folder of this row
    that pods share, `{programs}`, `{model}` and `{dataset}` others; the programs of `program` are sent along.

    `expects` is a regular expression that the log must contain. `then` goes on in the same folder.
    """

    name: str
    runtime: str
    nodes: int = 2
    processes: int = 1
    program: str = ""
    options: tuple[str, ...] = ()
    expects: str = ""
    model: str = ""
    """A small model that is made before: `llama3.1`, `llama3.2`, `qwen2` for torchtune, `tiny` for TRL."""
    table_rows: int = 0
    """Rows of an Iceberg table that is made before; `{table}` in the options is its metadata."""
    tune: tuple[str, ...] = ()
    """Arguments of `tune run`, in a manifest: by itself, `trainwright submit` lets Trainer's initializers read no local files."""
    is_quick: bool = False
    """Fits into the time of CI."""
    is_for_gpu: bool = False
    then: Row | None = None

    @property
    def environment(self) -> str:
        """The name of the environment that has to be made for it."""
        if self.table_rows:
            return "data-cache"
        return next(
            (
                name
                for name in ("deepspeed", "mlx", "jax", "xgboost", "torchtune", "tensorflow", "paddle")
                if self.runtime.startswith(name)
            ),
            "torch",
        )


def _torchtune(name: str, runtime: str, model: tuple[str, ...], family: str, processes: int, kind: str = "full") -> Row:
    component, *more = model
    if kind != "full":
        package, _, builder = component.rpartition(".")
        component = f"{package}.lora_{builder}"
    settings = [component, *more, *(f"model.{setting}" for setting in _SMALL)]
    if kind != "full":
        settings += [*(f"model.{setting}" for setting in _LORA), "optimizer.lr=3e-2"]
    if kind == "full" and processes == 1:
        settings += ["optimizer._component_=torch.optim.AdamW"]  # the configuration's needs a GPU
    if kind == "qlora":
        settings += ["model.quantize_base=True"]
    return Row(
        f"{name}, {kind}, {processes} process{'es' if processes > 1 else ''}",
        runtime,
        nodes=1,
        processes=processes,
        tune=(*_STEPS, *settings),
        model=family,
    )


def _trl(name: str, runtime: str, nodes: int, **settings: object) -> Row:
    given = {"steps": 10, "batch_size": 4, "max_length": 64, "logging_steps": 1, "learning_rate": 1e-2, "cpu": True, **settings}
    options = ("--workspace", "pvc://runtimes?size=1Gi", "--settings", json.dumps(given))
    return Row(f"{name}, {nodes} node{'s' if nodes > 1 else ''}", runtime, nodes=nodes, options=options, model="tiny")


_DDP = Row("DDP, 2 nodes", "torch-distributed", program="torch_ddp.py", expects="world=2", is_quick=True)
CACHED = Row(
    "an Iceberg table, 2 readers, 2 epochs",
    "torch-distributed-with-cache",
    program="torchrun torch_cached.py",
    options=("--dataset-uri", "cache://shop/orders", "--metadata-loc", "{table}", "--worker-mem", "512Mi"),
    expects="world=2 rows=4000 mine=2000 epochs=2",
    table_rows=4000,
    is_quick=True,
)
_FSDP = Row(
    "FSDP2, then on 1 node from the checkpoint", "torch-distributed", program="torch_fsdp2.py {data} 20", expects="world=2"
)
ROWS = (
    _DDP,
    replace(_DDP, name="DDP, 1 node x 2", nodes=1, processes=2, is_quick=False),
    replace(_FSDP, then=replace(_FSDP, nodes=1, program="torch_fsdp2.py {data} 40", expects="resumed_from=19")),
    Row(
        "elastic, a node lost and regained",
        "torch-distributed",
        program=ELASTIC,
        # torch 2.13: else the agent of rank 0 does not tell a node that comes later where to meet.
        options=("--restarts", "3", "--env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"),
        expects=r"world=2 from=[1-9]",
    ),
    CACHED,
    Row("ZeRO-1", "deepspeed-distributed", program="python3 deepspeed_zero.py 1", expects="size=2"),
    Row("ZeRO-3", "deepspeed-distributed", program="python3 deepspeed_zero.py 3", expects="size=2"),
    Row("MPI", "mlx-distributed", program="python3 mlx_data_parallel.py mpi", expects="size=2", is_quick=True),
    Row(
        "ring",
        "mlx-distributed",
        options=("--command", f"python3 {{programs}}/mlx_data_parallel.py ring {HOSTFILE}"),
        expects="size=2",
    ),
    Row("mlx_lm lora", "mlx-distributed", options=("--command", _MLX_LM, "--env", "MLX_DISABLE_COMPILE=1"), model="tiny"),
    Row("data parallel", "jax-distributed", program="python3 jax_data_parallel.py", expects="world=2", is_quick=True),
    Row("2 workers", "xgboost-distributed", program="python3 xgboost_workers.py", expects="world=2", is_quick=True),
    Row("MultiWorkerMirrored", "tensorflow-distributed", program="python3 tensorflow_multiworker.py", expects="world=2"),
    Row("collective", "paddle-distributed", program="python3 paddle_collective.py", expects="world=2"),
    _torchtune("Llama 3.2", "torchtune-llama3.2-1b", _LLAMA, "llama3.2", 2),
    _torchtune("Llama 3.2", "torchtune-llama3.2-1b", _LLAMA, "llama3.2", 1, "lora"),
    _torchtune("Llama 3.2", "torchtune-llama3.2-3b", _LLAMA, "llama3.2", 1, "qlora"),
    _torchtune("Llama 3.1", "torchtune-llama3.1-8b", _LLAMA_31, "llama3.1", 2, "lora"),
    _torchtune("Qwen 2.5", "torchtune-qwen2.5-1.5b", _QWEN, "qwen2", 1),
    _trl("LoRA", "trl-sft", 2),
    _trl("full", "trl-sft", 1, method="full"),
    _trl("LoRA", "trl-dpo", 1),
    _trl("LoRA", "trl-kto", 1),
    replace(
        _DDP,
        name="NCCL",
        nodes=1,
        options=("--resources-per-node", '{"nvidia.com/gpu": 1}'),
        expects="world=1",
        is_quick=False,
        is_for_gpu=True,
    ),
    replace(_trl("LoRA, bf16", "trl-sft", 1, cpu=False), is_for_gpu=True),
    replace(_trl("QLoRA", "trl-sft", 1, cpu=False, method="qlora"), is_for_gpu=True),
)
