"""What programs print of their progress: forms that are recognised, and what must not be."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from trainwright.jobs.logs.log_metrics import ParsedProgress, parse_progress

HF_BAR = " 12%|█▏        | 12/100 [00:10<01:14,  1.19it/s]"


@pytest.mark.parametrize(
    ("line", "metrics", "bar"),
    [
        ("{'loss': 1.2345, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 0.5}", "loss grad_norm learning_rate epoch", ()),
        ("{'loss': '1.234', 'learning_rate': '0', 'epoch': '0.08'}", "loss learning_rate epoch", ()),
        ("{'loss': nan, 'grad_norm': None, 'epoch': 1.0}", "loss epoch", ()),
        ('{"eval_loss": 0.3, "eval_model": "a b", "epoch": 1}', "eval_loss epoch", ()),
        (f"{HF_BAR}\r                       \r{{'loss': 1.0, 'epoch': 0.1}}", "loss epoch", (12, 100, 74)),
        (HF_BAR, "", (12, 100, 74)),
        ("100%|██████████| 5/5 [1:00:00<00:00, 720s/it]", "", (5, 5, 0)),
        ("  0%|          | 0/25 [00:00<?, ?it/s]", "", (0, 25, None)),
        ("\r".join(["  1%|  | 1/99 [00:01<00:98, 1it/s]", "  2%|  | 2/99 [00:02<00:97, 1it/s]"]), "", (2, 99, 97)),
        ("1|20|Loss: 1.23456:  20%|██        | 20/100 [00:10<00:40,  2.00it/s]", "loss epoch step", ()),
        ("Step 7 | loss:1.5 lr:2e-05 tokens_per_second_per_gpu:812.5 ", "loss lr tokens_per_second_per_gpu step", ()),
        ("Epoch 3:  45%|████▌     | 45/100 [00:10<00:12, 4.2it/s, v_num=0, train_loss=0.512]", "v_num train_loss epoch", ()),
        ("Epoch [1/5], Step [100/600], Loss: 0.2345", "loss epoch step", ()),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300039", "loss epoch", ()),
        ("epoch=1 step=20 train_loss=0.5", "train_loss epoch step", ()),
    ],
)
def test_forms_that_are_recognised(line: str, metrics: str, bar: tuple[int, ...]) -> None:
    reading = parse_progress(line)
    assert reading is not None
    assert sorted(dict(reading.metrics)) == sorted(metrics.split())
    assert (reading.done, reading.total, reading.remaining_seconds) == (bar or (0, 0, None))


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        (
            "Iter 10: Train loss 2.031, Learning Rate 1.000e-05, It/sec 5.2, Tokens/sec 812.5, Trained Tokens 1563, Peak mem 1.2 GB",
            {"loss": "2.031", "learning_rate": "1.000e-05", "step": "10"},
        ),
        ("Iter 1: Val loss 2.9, Val took 0.123s", {"eval_loss": "2.9", "step": "1"}),
        (
            "\x1b[2K  \x1b[38;5;244m   5\x1b[0m    \x1b[32m2.134 \u25bc\x1b[0m    \x1b[1m3,470\x1b[0m    \x1b[38;5;244m  0.4k\x1b[0m",
            {"loss": "2.134", "step": "5"},
        ),
        ("\x1b[2K\x1b[1A     5    val 9.000    0.10s", {"eval_loss": "9.000", "step": "5"}),
        (
            "[3]\ttrain-logloss:0.61\teval-logloss:0.65",
            {"loss": "0.61", "train-logloss": "0.61", "eval-logloss": "0.65", "step": "3"},
        ),
        ("[12]\ttrain-rmse:4.25", {"train-rmse": "4.25", "step": "12"}),
        (
            "100/100 \u2501\u2501\u2501 1s 5ms/step - accuracy: 0.9050 - loss: 0.3012 - val_loss: 0.2511",
            {"loss": "0.3012", "val_loss": "0.2511"},
        ),
        ("step 10/938 - loss: 0.5312 - acc: 0.8094 - 12ms/step", {"loss": "0.5312", "step": "10"}),
    ],
    ids=["mlx_lm", "mlx_lm val", "mlx_lm row", "mlx_lm val row", "xgboost", "xgboost rmse", "keras", "paddle hapi"],
)
def test_figures_of_frameworks_have_their_names(line: str, metrics: dict[str, str]) -> None:
    reading = parse_progress(line)
    assert reading is not None
    assert dict(reading.metrics) == metrics


@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=300)
    | st.text(alphabet="{}'\"loss:=|%[]<>,0123456789 \r/eE.-", max_size=300)
)
def test_property_any_text_is_a_reading_or_none(line: str) -> None:
    reading = parse_progress(line)
    if reading is not None:
        assert reading.metrics or reading.total or reading == ParsedProgress()
        for _, value in reading.metrics:
            float(value)


METRICS = st.dictionaries(
    st.sampled_from(["loss", "eval_loss", "epoch", "grad_norm", "learning_rate", "train/loss"]),
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**12), 10**12),
    min_size=1,
).filter(lambda metrics: any("loss" in name or name == "epoch" for name in metrics))


@given(METRICS, st.sampled_from([repr, json.dumps, lambda metrics: repr({name: str(value) for name, value in metrics.items()})]))
def test_property_a_printed_dictionary_is_read_whole(metrics: dict[str, float], printed: object) -> None:
    assert callable(printed)
    reading = parse_progress(printed(metrics))
    assert reading is not None
    assert {name: float(value) for name, value in reading.metrics} == {name: float(value) for name, value in metrics.items()}


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 10**5), st.booleans())
def test_property_a_bar_of_tqdm_is_read(done: int, more: int, elapsed: int, ascii_only: bool) -> None:
    bar = tqdm.format_meter(done, done + more, elapsed=elapsed, ascii=ascii_only)
    reading = parse_progress(bar)
    assert reading is not None, bar
    assert (reading.done, reading.total) == (done, done + more)
    assert reading.remaining_seconds is not None
    assert abs(reading.remaining_seconds - more * elapsed / done) <= 1
