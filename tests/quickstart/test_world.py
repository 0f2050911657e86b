"""The shipped text is what the generator writes, and a held-out row is answered by the rows and the prose that remain."""

import json
from collections import Counter
from pathlib import Path

from trainwright.quickstart import world

DATA = Path(world.__file__).parent / "data"


def test_the_generator_writes_the_shipped_bytes(tmp_path: Path) -> None:
    for path in world.write_world(tmp_path):
        assert path.read_bytes() == (DATA / path.name).read_bytes(), f"{path.name}: run the generator again"


def test_another_seed_makes_another_world() -> None:
    assert world.instruction_rows(1) != world.instruction_rows(2)
    assert world.corpus_text(1) != world.corpus_text(2)


def test_the_rows_have_the_alpaca_layout() -> None:
    rows = world.instruction_rows()
    assert 800 <= len(rows) <= 1200
    assert all(list(row) == ["instruction", "input", "output"] for row in rows)
    assert all(row["instruction"] and row["output"] for row in rows)
    assert 50 < sum(1 for row in rows if row["input"]) < len(rows) / 2
    assert not any("{" in value for row in rows for value in row.values())


def test_no_row_occurs_twice() -> None:
    asked = Counter((row["instruction"], row["input"]) for row in world.instruction_rows())
    assert max(asked.values()) == 1


def test_names_reach_beyond_ascii() -> None:
    assert sum(1 for row in world.instruction_rows() if not row["output"].isascii()) > 20


def test_the_prose_tells_every_fact_of_every_ship() -> None:
    ships, places = world._world(world.SEED)
    paragraphs = world.corpus_text().splitlines()
    for ship in ships:
        told = " ".join(paragraph for paragraph in paragraphs if ship.ship in paragraph)
        missing = [fact for fact, shapes in world.STATEMENTS.items() if not any(s.format(**vars(ship)) in told for s in shapes)]
        assert not missing, f"{ship.ship}: {missing}"
    for place in places:
        assert any(place.place in paragraph and place.keeper in paragraph for paragraph in paragraphs)


def test_the_prose_neither_asks_nor_answers() -> None:
    text = world.corpus_text()
    assert "?" not in text
    assert not {row["output"] for row in world.instruction_rows()} & set(text.splitlines())


def test_a_tenth_held_out_is_still_answered_by_the_rest() -> None:
    rows = world.instruction_rows()
    held_out, rest = rows[: len(rows) // 10], rows[len(rows) // 10 :]
    known = " ".join(row["output"] for row in rest)
    assert all(row["output"].rstrip(".").split()[-1] in known for row in held_out)


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    assert world.main(["--out", str(tmp_path / "new")]) == 0
    with (tmp_path / "new" / world.INSTRUCTIONS_FILE).open(encoding="utf-8") as file:
        assert [json.loads(line) for line in file] == world.instruction_rows()
