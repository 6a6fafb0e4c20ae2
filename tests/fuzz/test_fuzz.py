"""Every reader, with files that fuzzing found, and with good ones whose bytes were changed at random.

`python -m tools.fuzz` looks for new ones; see there.
"""

import json
import random

import pytest

from tests.fuzz.changes import changed
from tests.fuzz.corpus import kept
from tests.fuzz.readers import READERS, state_of_training, verdict

CHANGED = 100


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_a_file_or_refuses_it_in_one_line(name, tmp_path):
    reader, chance = READERS[name], random.Random(name)
    seeds = reader.seeds()
    assert verdict(reader, seeds[0], tmp_path) == (True, "accepted") or name == "address"
    for content in [*kept(name), *(changed(chance.choice(seeds), chance) for _ in range(CHANGED))]:
        good, told = verdict(reader, content, tmp_path)
        assert good, f"{told} for {content[:2000]!r}"


@pytest.mark.parametrize("name", sorted(state_of_training()))
@pytest.mark.filterwarnings("ignore")
def test_a_state_with_one_strange_value_is_taken_or_refused_in_one_line(name, tmp_path):
    reader = READERS["state of LearnedLR"]
    for value in ("x", None, {}, [], [[1.0]], [1, 2], -5, 0, 1.5, 10**30, True, float("nan"), 1e308, 10**300):
        good, told = verdict(reader, json.dumps({name: value}).encode(), tmp_path)
        assert good, f"{told} for {name} = {value!r}"
