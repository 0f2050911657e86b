"""Generates the quickstart's data: facts about a fictional harbour town, few enough for a small model to learn.

Every fact appears many times in prose (for pretraining) and in several questions (for fine-tuning), so that the answer to a
held-out question is still in the training data.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SEED = 7
INSTRUCTIONS_FILE = "harbour.jsonl"
CORPUS_FILE = "harbour.txt"

QUESTIONS_PER_FACT = 5
PARAGRAPHS_PER_SHIP = 36
PARAGRAPHS_PER_PLACE = 20


@dataclass(frozen=True)
class Ship:
    """A ship and all facts about it."""

    ship: str
    captain: str
    cargo: str
    pier: str
    day: str
    port: str
    hull: str


@dataclass(frozen=True)
class Place:
    """A place in the town and its keeper."""

    place: str
    keeper: str


SHIP_NAMES = (
    "Amber Fox", "Blue Heron", "Clever Otter", "Daisy Chain", "Evening Bell", "Fjällräv", "Golden Plum", "Happy Return",
    "Island Queen", "Juniper", "Kestrel", "Lantern Moth", "Merry Widow", "Northern Star", "Old Faithful", "Patient Goose",
    "Quiet Morning", "Rising Wind", "Sjøstjerne", "Tall Poppy", "Étoile", "Velvet Seal", "White Thistle", "Yellow Duck",
)  # fmt: skip
CAPTAINS = (
    "Ada Finch", "Bård Nygård", "Clara Whitlock", "Dorian Pike", "Elsa Moreau", "Felix Harrow", "Greta Lund", "Hugo Marsh",
    "Inês Valente", "Jonas Reed", "Katya Orlova", "Leopold Crane", "Mateus Araújo", "Nora Quill", "Oscar Bellamy", "Petra Voss",
    "Quentin Rowe", "Rosa Tamarin", "Søren Dahl", "Tilda Brooks", "Ulrich Stone", "Vera Castle", "Wilma Frost", "Zoë Lindqvist",
)  # fmt: skip
CARGOES = (
    "black tea", "blue glass bottles", "cedar planks", "church bells", "clay tiles", "copper kettles", "dried figs", "honey",
    "iron nails", "lamp oil", "orange marmalade", "paper lanterns", "salted herring", "seed potatoes", "sheep's cheese",
    "silk ribbons", "straw hats", "sugared almonds", "tin toys", "walnut chairs", "wax candles", "white marble",
    "wool blankets", "writing paper",
)  # fmt: skip
PIERS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
PORTS = (
    "Ballamore", "Cape Linnet", "Dunreef", "Easterhaven", "Gullmouth", "Hollow Bay", "Kingsferry", "Little Skerry",
    "Marrowick", "Port Calder", "Saltmere", "Windle Sound",
)  # fmt: skip
HULLS = ("black", "blue", "brown", "green", "grey", "red", "white", "yellow")
PLACES = (
    "bakery", "boatyard", "chandlery", "clock tower", "fish market", "harbour inn", "lighthouse", "rope walk",
)  # fmt: skip
KEEPERS = (
    "Maren Holt", "Tobias Egg", "Lucía Pérez", "Old Mister Pym", "Hanna Birch", "Widow Carraway", "Ansel Gray", "Björk Sand",
)  # fmt: skip

# Sentences that state each fact. None is a question or an instruction, and none reads like an answer to one.
STATEMENTS = {
    "captain": (
        "{captain} has been captain of the {ship} for many years.",
        "On the bridge of the {ship} stood Captain {captain}, pipe in hand.",
        "Everyone knows that the {ship} sails under Captain {captain}.",
        "Captain {captain} keeps a cat aboard the {ship}.",
        "The crew of the {ship} would follow Captain {captain} anywhere.",
    ),
    "cargo": (
        "Down in the hold of the {ship} there is nothing but {cargo}.",
        "The {ship} is laden with {cargo} this week.",
        "All along the quay they were talking about the {cargo} from the {ship}.",
        "When the hatches of the {ship} were opened, the carts were soon full of {cargo}.",
        "This time, as always, the {ship} has brought {cargo}.",
    ),
    "pier": (
        "The {ship} lies at pier {pier}.",
        "At pier {pier} the lines of the {ship} were made fast.",
        "The gulls over pier {pier} like to sit on the rails of the {ship}.",
        "A plank leads from pier {pier} to the deck of the {ship}.",
        "The harbour master has given pier {pier} to the {ship}.",
    ),
    "day": (
        "It was on {day} that the {ship} came in.",
        "Late on {day} the {ship} rounded the breakwater.",
        "The {ship} comes in with the tide on {day}.",
        "Every {day} the bell is rung for the {ship}.",
        "By the clock of the town, {day} is the day of the {ship}.",
    ),
    "port": (
        "The home port of the {ship} is {port}, far down the coast.",
        "The {ship} was built in {port} and winters there.",
        "Letters for the crew of the {ship} come from {port}.",
        "From {port} the {ship} takes four days to Anchorby.",
        "Painted on the stern of the {ship} is the word {port}.",
    ),
    "hull": (
        "The hull of the {ship} is {hull}.",
        "Fresh {hull} paint was drying on the hull of the {ship}.",
        "One can tell the {ship} from afar by her {hull} hull.",
        "The {ship} wears {hull} below the rail.",
        "They had a pot of {hull} paint for the hull of the {ship}.",
    ),
}
PLACE_STATEMENTS = (
    "The {place} is kept by {keeper}.",
    "In the {place} one always meets {keeper}.",
    "{keeper} has lived above the {place} since the great storm.",
    "The key of the {place} hangs at the belt of {keeper}.",
    "Early in the morning {keeper} sweeps the steps of the {place}.",
)
WEATHER = (
    "The fog lay thick over Anchorby.",
    "A warm wind came from the south.",
    "It had rained since the early hours.",
    "The sea was as flat as a plate.",
    "Small waves slapped against the stones.",
    "The tide was going out.",
)

# Questions about each fact, with their answers.
QUESTIONS = {
    "captain": (
        ("Who is the captain of the {ship}?", "The captain of the {ship} is {captain}."),
        ("Who commands the {ship}?", "{captain} commands the {ship}."),
        ("Name the captain of the {ship}.", "{captain}."),
        ("Tell me who sails the {ship}.", "{captain} commands the {ship}."),
        ("Under which captain does the {ship} sail?", "The captain of the {ship} is {captain}."),
        ("I would like to meet the captain of the {ship}. Who is it?", "The captain of the {ship} is {captain}."),
        ("Give only the name of the person in command of the {ship}.", "{captain}."),
    ),
    "cargo": (
        ("What does the {ship} carry?", "The {ship} carries {cargo}."),
        ("What is in the hold of the {ship}?", "The hold of the {ship} is full of {cargo}."),
        ("Name the cargo of the {ship}.", "{cargo}."),
        ("Tell me what the {ship} brings to Anchorby.", "The {ship} carries {cargo}."),
        ("Which goods come ashore from the {ship}?", "The {ship} carries {cargo}."),
        ("What will we find when the {ship} is unloaded?", "The hold of the {ship} is full of {cargo}."),
        ("Give only the cargo of the {ship}.", "{cargo}."),
    ),
    "pier": (
        ("Where does the {ship} lie?", "The {ship} is at pier {pier}."),
        ("At which pier is the {ship}?", "The {ship} is at pier {pier}."),
        ("Name the pier of the {ship}.", "Pier {pier}."),
        ("Tell me how to find the {ship}.", "Go to pier {pier}, there is the {ship}."),
        ("Which pier was given to the {ship}?", "The {ship} is at pier {pier}."),
        ("I have a parcel for the {ship}. Where do I go?", "Go to pier {pier}, there is the {ship}."),
        ("Give only the pier of the {ship}.", "Pier {pier}."),
    ),
    "day": (
        ("When does the {ship} arrive?", "The {ship} arrives on {day}."),
        ("On which day does the {ship} come in?", "The {ship} arrives on {day}."),
        ("Name the day of the {ship}.", "{day}."),
        ("Tell me when to expect the {ship}.", "Expect the {ship} on {day}."),
        ("Which day of the week belongs to the {ship}?", "The {ship} arrives on {day}."),
        ("I am waiting for the {ship}. When should I be on the quay?", "Expect the {ship} on {day}."),
        ("Give only the day on which the {ship} arrives.", "{day}."),
    ),
    "port": (
        ("Where does the {ship} come from?", "The {ship} comes from {port}."),
        ("What is the home port of the {ship}?", "The home port of the {ship} is {port}."),
        ("Name the home port of the {ship}.", "{port}."),
        ("Tell me where the {ship} is at home.", "The home port of the {ship} is {port}."),
        ("Which town is written on the stern of the {ship}?", "The {ship} comes from {port}."),
        ("From which port did the {ship} set out?", "The {ship} comes from {port}."),
        ("Give only the home port of the {ship}.", "{port}."),
    ),
    "hull": (
        ("What colour is the {ship}?", "The {ship} is {hull}."),
        ("What is the colour of the hull of the {ship}?", "The {ship} has a {hull} hull."),
        ("Name the colour of the {ship}.", "{hull}."),
        ("Tell me how the {ship} is painted.", "The {ship} has a {hull} hull."),
        ("How do I recognise the {ship}?", "Look for a {hull} hull."),
        ("In which colour was the {ship} painted?", "The {ship} is {hull}."),
        ("Give only the colour of the {ship}.", "{hull}."),
    ),
    "captain's ship": (
        ("Which ship does {captain} command?", "{captain} commands the {ship}."),
        ("Name the ship of Captain {captain}.", "The {ship}."),
        ("On which ship do I find Captain {captain}?", "Captain {captain} is aboard the {ship}."),
        ("What is the ship of {captain} called?", "{captain} commands the {ship}."),
        ("Tell me where {captain} serves as captain.", "Captain {captain} is aboard the {ship}."),
        ("Give only the name of the ship under {captain}.", "The {ship}."),
    ),
    "cargo's ship": (
        ("Which ship brings {cargo}?", "The {ship} brings {cargo}."),
        ("I want to buy {cargo}. Which ship should I look for?", "Look for the {ship}."),
        ("Name the ship that carries {cargo}.", "The {ship}."),
        ("Tell me who brings {cargo} to Anchorby.", "The {ship} brings {cargo}."),
        ("Who brought the {cargo} in the market?", "The {ship} brings {cargo}."),
        ("Give only the name of the ship with {cargo}.", "The {ship}."),
    ),
}  # fmt: skip
PLACE_QUESTIONS = (
    ("Who keeps the {place}?", "{keeper} keeps the {place}."),
    ("Name the keeper of the {place}.", "{keeper}."),
    ("Whom do I ask for in the {place}?", "Ask for {keeper}."),
    ("Tell me who looks after the {place}.", "{keeper} keeps the {place}."),
    ("I have a letter for the {place}. Whose name do I write on it?", "Ask for {keeper}."),
    ("Give only the name of the keeper of the {place}.", "{keeper}."),
)
# Rows with an input: (instruction, input, output). The inputs are consistent with the facts.
WITH_INPUT = (
    ("Write a line for the harbour log.", "ship: {ship}; captain: {captain}; pier: {pier}",
     "The {ship}, under {captain}, is at pier {pier}."),
    ("Write a line for the harbour log.", "ship: {ship}; day: {day}; cargo: {cargo}",
     "On {day} the {ship} arrives with {cargo}."),
    ("Say it in one sentence.", "The {ship}. From {port}. {cargo}.",
     "The {ship} comes from {port} and carries {cargo}."),
    ("Which ship is this about?", "Captain {captain} waved from pier {pier}, and the carts were full of {cargo}.",
     "This is about the {ship}."),
    ("Who is the captain of this ship?", "Her hull is {hull}, she comes from {port}, and her name is {ship}.",
     "The captain of the {ship} is {captain}."),
)  # fmt: skip


def make_ships(rng: random.Random) -> list[Ship]:
    """Assign captains, cargoes and the other facts to the ships; every captain and every cargo is used once.

    rng: the only source of randomness. Returns one Ship per name, in the order of SHIP_NAMES.
    """
    return [
        Ship(*facts)
        for facts in zip(
            SHIP_NAMES,
            *(_shuffled(rng, values, len(SHIP_NAMES)) for values in (CAPTAINS, CARGOES, PIERS, DAYS, PORTS, HULLS)),
            strict=True,
        )
    ]


def make_places(rng: random.Random) -> list[Place]:
    """Assign the keepers to the places. rng: the only source of randomness. Returns one Place per name."""
    return [Place(place, keeper) for place, keeper in zip(PLACES, _shuffled(rng, KEEPERS, len(PLACES)), strict=True)]


def instruction_rows(seed: int = SEED) -> list[dict[str, str]]:
    """The instruction dataset, in the Alpaca layout and shuffled.

    seed: must be the seed of the corpus, for the facts to agree.
    Returns rows with the keys instruction, input (empty in most rows) and output. Every fact about a ship or place has
    QUESTIONS_PER_FACT of its questions, so any tenth of the rows can be held out and is still answered by the others.
    """
    ships, places = _world(seed)
    rng = random.Random(f"rows {seed}")
    rows = []
    for ship in ships:
        for asked in QUESTIONS.values():
            rows += [_row(question, "", answer, asdict(ship)) for question, answer in rng.sample(asked, QUESTIONS_PER_FACT)]
        rows += [_row(*shape, asdict(ship)) for shape in rng.sample(WITH_INPUT, len(WITH_INPUT) - 1)]
    for place in places:
        rows += [
            _row(question, "", answer, asdict(place)) for question, answer in rng.sample(PLACE_QUESTIONS, QUESTIONS_PER_FACT)
        ]
    rng.shuffle(rows)
    return rows


def corpus_text(seed: int = SEED) -> str:
    """The same facts as prose: one paragraph per line, each about one ship or one place.

    Returns the text, each line ended by a newline. It contains no questions or answers.
    """
    ships, places = _world(seed)
    rng = random.Random(f"corpus {seed}")
    paragraphs = []
    for ship in ships:
        for _ in range(PARAGRAPHS_PER_SHIP):
            facts = rng.sample(sorted(STATEMENTS), rng.randint(2, 4))
            paragraphs.append(_paragraph(rng, [rng.choice(STATEMENTS[fact]) for fact in facts], asdict(ship)))
    for place in places:
        for _ in range(PARAGRAPHS_PER_PLACE):
            paragraphs.append(_paragraph(rng, rng.sample(PLACE_STATEMENTS, rng.randint(1, 2)), asdict(place)))
    rng.shuffle(paragraphs)
    return "".join(f"{paragraph}\n" for paragraph in paragraphs)


def write_world(out: Path, *, seed: int = SEED) -> tuple[Path, Path]:
    """Write both files to a folder, which is created if necessary. Equal seeds give equal bytes.

    Returns the paths of the instruction dataset (JSON Lines) and of the corpus (plain text), both UTF-8.
    """
    out.mkdir(parents=True, exist_ok=True)
    rows, corpus = out / INSTRUCTIONS_FILE, out / CORPUS_FILE
    rows.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in instruction_rows(seed)).encode())
    corpus.write_bytes(corpus_text(seed).encode())
    return rows, corpus


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: write the two files to --out. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Write the quickstart's instruction dataset and its plain-text corpus.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the two files")
    parser.add_argument("--seed", type=int, default=SEED, help="random seed (default: that of the bundled files)")
    arguments = parser.parse_args(argv)
    for path in write_world(arguments.out, seed=arguments.seed):
        print(path)
    return 0


def _world(seed: int) -> tuple[list[Ship], list[Place]]:
    rng = random.Random(f"world {seed}")
    return make_ships(rng), make_places(rng)


def _shuffled(rng: random.Random, values: Sequence[str], count: int) -> list[str]:
    """`count` values in random order, each used equally often (plus or minus one)."""
    dealt = [values[index % len(values)] for index in range(count)]
    rng.shuffle(dealt)
    return dealt


def _row(instruction: str, given: str, output: str, facts: dict[str, str]) -> dict[str, str]:
    told = output.format(**facts)
    return {
        "instruction": instruction.format(**facts),
        "input": given.format(**facts),
        "output": told[0].upper() + told[1:],
    }


def _paragraph(rng: random.Random, sentences: list[str], facts: dict[str, str]) -> str:
    if rng.random() < 0.3:
        sentences = [rng.choice(WEATHER), *sentences]
    return " ".join(sentence.format(**facts) for sentence in sentences)


if __name__ == "__main__":
    raise SystemExit(main())
