"""Texts: words and characters as numbers, and where they are cut."""

import pytest
import torch

from mlrsnet_lab.datasets import load


def write_texts(folder, train, valid, test):
    folder.mkdir(parents=True)
    for name, content in (("train", train), ("valid", valid), ("test", test)):
        (folder / f"{name}.txt").write_bytes(content.encode())


def test_words_are_numbered_by_first_appearance_and_lines_end_with_eos(tmp_path):
    write_texts(tmp_path / "ptb", " the cat <unk> \n\n sat the \n", "cat sat\n", "the dog")
    task = load("ptb", root=tmp_path)
    assert task.vocabulary == ("the", "cat", "<unk>", "<eos>", "sat")
    assert task.num_classes == 5
    assert task.train.tolist() == [0, 1, 2, 3, 3, 4, 0, 3]
    assert task.val.tolist() == [1, 4, 3]
    assert task.test.tolist() == [0, 2, 3]  # dog is unknown; the last line lacks its line end
    assert task.train.dtype == torch.int64
    assert task.sizes == {"train": 8, "val": 3, "test": 3}


def test_an_unknown_word_or_character_is_never_scored_as_another_one(tmp_path):
    write_texts(tmp_path / "ptb", "a cat\n", "a cat\n", "a dog\n")
    with pytest.raises(ValueError, match=r"ptb: every token of the test part .* got 'dog'"):
        load("ptb", root=tmp_path)
    with pytest.raises(ValueError, match=r"every token of the test part .* got 'd'"):
        load("ptb-chars", root=tmp_path)


def test_characters_are_all_of_the_file_line_ends_and_rare_ones_included(tmp_path):
    write_texts(tmp_path / "wikitext2", "bé\n😀b\n", "😀\n", "b")
    task = load("wikitext2-chars", root=tmp_path)
    assert task.vocabulary == ("b", "é", "\n", "😀")
    assert "".join(task.vocabulary[i] for i in task.train) == "bé\n😀b\n"
    assert task.val.tolist() == [3, 2]
    assert task.train.dtype == torch.int64


def test_shakespeare_is_cut_where_it_says_and_no_character_is_in_two_parts(tmp_path):
    content = "to be or not to be " * 20
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text(content)
    task = load("tinyshakespeare", root=tmp_path)
    assert task.sizes == {"train": 342, "val": 19, "test": 19}
    whole = torch.cat([task.train, task.val, task.test])
    assert "".join(task.vocabulary[i] for i in whole) == content


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff\xfe", "must be UTF-8 text"), (b"", "must have some text, got an empty file")]
)
def test_a_text_that_cannot_be_read_is_named(tmp_path, content, message):
    write_texts(tmp_path / "ptb", "a\n", "a\n", "a\n")
    (tmp_path / "ptb" / "valid.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"valid.txt {message}"):
        load("ptb", root=tmp_path)


def test_a_text_too_short_to_cut_is_refused(tmp_path):
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("aaa")
    with pytest.raises(ValueError, match="the val part must have at least one character"):
        load("tinyshakespeare", root=tmp_path)


def test_pythons_own_manual_is_always_there():
    manual = load("manual")
    assert manual.num_classes == len(set(manual.vocabulary)) == 1000
    assert {part: size > 1000 for part, size in manual.sizes.items()} == {"train": True, "val": True, "test": True}
    words = [manual.vocabulary[number] for number in manual.train[:2000].tolist()]
    assert {"the", "is", "of"} <= set(words)
    assert "manual of Python" in manual.note
