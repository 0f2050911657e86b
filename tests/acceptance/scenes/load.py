"""Many at once: waits, runs on one claim."""

from __future__ import annotations

from acceptance.checks import ends, file_has, job_is
from acceptance.scene import Scene
from acceptance.scenes.checkpoints import CODE, OWN, trains
from acceptance.stage import Stage
from acceptance.told import Told

WRITES = (
    "import os, time\nfor n in range(20):\n    open('/workspace/own', 'a').write(os.environ['WORD'] + ' ')\n"
    "    time.sleep(0.1)\nprint(os.listdir('/workspace'))\n"
)


def _many(stage: Stage) -> Told:
    words = ("--wait", "--logs", *trains(4, 0.5))
    waits = [stage.begin("submit", "--run-id", f"{stage.name}-{number}", *words) for number in range(20)]
    ends = [waiting.wait(600) for waiting in waits]
    assert [told.code for told in ends] == [0] * 20, next(told for told in ends if told.code)
    for told in ends:
        assert "step 4" in told.out, told
    return max(ends, key=lambda told: told.seconds)


def _two_on_one_claim(stage: Stage) -> Told:
    def begin(word: str) -> object:
        words = (*OWN, "--code", "{folder}/writes", "--command", "python3 train.py", "--env", f"WORD={word}")
        return stage.begin("submit", "--run-id", f"{stage.name}-{word}", "--wait", "--logs", *words)

    waits = [begin("one"), begin("two")]
    ends = [waiting.wait() for waiting in waits]  # type: ignore[attr-defined]
    assert ends[0].code == 0, ends[0]
    return ends[1]


SCENES = [
    Scene("20 waits at once", _many, (ends(0), job_is("Complete", jobs=20)), files=CODE),
    Scene(
        "two runs on one claim",
        _two_on_one_claim,
        (
            ends(0),
            job_is("Complete", jobs=2),
            file_has("runs/{name}-one/own", "^(one ){20}$"),
            file_has("runs/{name}-two/own", "^(two ){20}$"),
        ),
        files={"writes/train.py": WRITES},
    ),
]
