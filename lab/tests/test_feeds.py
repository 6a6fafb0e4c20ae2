"""Batches: what the training sees, in which order, and again after a stop."""

import copy
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy

from mlrsnet_lab import datasets
from mlrsnet_lab.datasets import ImageDataset, Pictures, TextDataset
from mlrsnet_lab.feeds import open_data
from mlrsnet_lab.feeds.pictures import Normalise, PictureData, PictureFeed
from mlrsnet_lab.feeds.streamed import StreamedData, StreamedFeed
from mlrsnet_lab.feeds.text import TextData, TextFeed
from mlrsnet_lab.models import build_text

CPU = torch.device("cpu")


def picture_task(count=23, pad=2, flip=True, shape=(5, 6, 3), held_out=7):
    """Random pictures, not square; a picture's label tells which one it is."""
    generator = torch.Generator().manual_seed(0)

    def some(number):
        images = torch.randint(256, (number, *shape), dtype=torch.uint8, generator=generator)
        return Pictures(images, torch.arange(number))

    channels = shape[-1]
    mean, std = (120.0, 100.0, 80.0)[:channels], (60.0, 50.0, 40.0)[:channels]
    return ImageDataset("made-up", count, some(count), some(held_out), some(held_out), pad, flip, mean, std)


def take(feed, number):
    """The next batches of pictures, as the training sees them."""
    found = []
    for _ in range(number):
        feed.prepare()
        found.append(feed.batch())
    return found


def equal(one, other):
    return len(one) == len(other) and all(
        torch.equal(a, b) for left, right in zip(one, other, strict=True) for a, b in zip(left, right, strict=True)
    )


# Pictures


@pytest.mark.parametrize("batch_size", [1, 4, 7, 23])
def test_an_epoch_shows_every_picture_at_most_once_and_wastes_only_the_rest_of_a_batch(batch_size):
    feed = PictureFeed(picture_task(), "train", batch_size, 0, CPU, augment=True)
    assert feed.steps == 23 // batch_size
    orders = []
    for _ in range(3):
        labels = torch.cat([labels for _, labels in take(feed, feed.steps)])
        assert len(labels) == len(labels.unique()) == feed.steps * batch_size
        orders.append(labels.tolist())
    assert orders[0] != orders[1] != orders[2]


def naive(task, feed, place):
    """The picture at a place of the epoch's plan: zeros around it, cut, mirrored, normalised, pixel by pixel."""
    number = int(feed.order[place])
    picture, pad = task.train.images[number].double(), task.pad
    height, width, channels = picture.shape
    wide = torch.zeros(height + 2 * pad, width + 2 * pad, channels, dtype=torch.float64)
    wide[pad : pad + height, pad : pad + width] = picture
    top, left = int(feed.top[place]), int(feed.left[place])
    cut = wide[top : top + height, left : left + width]
    if feed.mirror[place]:
        cut = cut.flip(1)
    mean, std = (torch.tensor(values, dtype=torch.float64) for values in (task.mean, task.std))
    return ((cut - mean) / std).permute(2, 0, 1).float(), number


@pytest.mark.parametrize(("pad", "flip"), [(0, False), (2, False), (0, True), (2, True)])
def test_crops_and_flips_are_those_of_one_picture_at_a_time(pad, flip):
    task = picture_task(pad=pad, flip=flip)
    feed = PictureFeed(task, "train", 4, 3, CPU, augment=True)
    mirrored, shifts = set(), set()
    for _ in range(6):
        for step in range(feed.steps):
            ((images, labels),) = take(feed, 1)
            for i in range(4):
                place = step * 4 + i
                expected, number = naive(task, feed, place)
                assert int(labels[i]) == number
                torch.testing.assert_close(images[i], expected, rtol=1e-6, atol=1e-6)
                mirrored.add(int(feed.mirror[place]))
                shifts.add((int(feed.top[place]), int(feed.left[place])))
    assert mirrored == ({0, 1} if flip else {0})  # and all of them do happen
    assert shifts == {(top, left) for top in range(2 * pad + 1) for left in range(2 * pad + 1)}


def test_batches_to_validate_on_are_augmented_only_where_asked_and_scores_never_are():
    plain, asked = picture_task(), replace(picture_task(), augment_val=True)
    own, theirs = (PictureData(task, 4, 3, CPU) for task in (plain, asked))
    for (images, labels), (augmented, same) in zip(take(own.val, 4), take(theirs.val, 4), strict=True):
        assert torch.equal(labels, same)  # the same pictures in the same order, cut in other ways
        assert images.shape == augmented.shape
        assert not torch.equal(images, augmented)
        assert torch.equal(images, own.normalise(plain.val.images[labels]))
    assert equal(take(own.train, 5), take(theirs.train, 5))
    model = nn.Sequential(nn.Flatten(), nn.Linear(90, 23))
    assert own.evaluate(model, "val") == theirs.evaluate(model, "val")


def test_pictures_are_normalised_by_the_tasks_mean_and_deviation():
    images = torch.randint(256, (3, 4, 5, 2), dtype=torch.uint8)
    found = Normalise((10.0, 200.0), (3.0, 70.0), CPU)(images)
    assert found.shape == (3, 2, 4, 5)
    for channel, (mean, std) in enumerate([(10.0, 3.0), (200.0, 70.0)]):
        torch.testing.assert_close(found[:, channel], (images[..., channel].float() - mean) / std)


def test_a_seed_is_an_order_of_the_data_and_another_seed_another_one():
    task = picture_task()
    first, again, other = (take(PictureFeed(task, "train", 4, seed, CPU, augment=True), 12) for seed in (5, 5, 6))
    assert equal(first, again)
    assert not equal(first, other)


def test_seeds_that_differ_in_their_upper_bits_only_are_different_seeds():
    task = picture_task()
    orders = {
        tuple(take(PictureFeed(task, "train", 20, seed, CPU), 1)[0][1].tolist()) for seed in (0, 2**32, 2**33, 2**63)
    }
    assert len(orders) == 4


def test_the_callers_random_state_does_not_choose_the_batches():
    task = picture_task()
    torch.manual_seed(1)
    first = take(PictureFeed(task, "train", 4, 5, CPU, augment=True), 6)
    torch.manual_seed(2)
    assert equal(first, take(PictureFeed(task, "train", 4, 5, CPU, augment=True), 6))


@pytest.mark.parametrize("done", [0, 1, 3, 4, 5, 7, 8, 10, 15])
def test_after_a_stop_the_same_batches_follow_in_mid_epoch_and_between_epochs(done):
    task = picture_task()  # 5 batches an epoch
    whole = take(PictureFeed(task, "train", 4, 0, CPU, augment=True), 20)
    stopped = PictureFeed(task, "train", 4, 0, CPU, augment=True)
    assert equal(take(stopped, done), whole[:done])
    state = copy.deepcopy(stopped.state_dict())
    resumed = PictureFeed(task, "train", 4, 0, CPU, augment=True)
    resumed.load_state_dict(state)
    assert equal(take(resumed, 20 - done), whole[done:])


def test_held_out_pictures_are_shown_as_they_are():
    task = picture_task()
    data = PictureData(task, 4, 0, CPU)
    plain = data.normalise(task.val.images)
    seen = set()
    for images, labels in take(data.val, 3):
        assert torch.equal(images, plain[labels])
        seen |= set(labels.tolist())
    assert seen <= set(range(7))
    assert len(seen) > 4  # three batches of one picture out of seven would repeat


def test_a_held_out_part_smaller_than_a_batch_is_used_whole():
    data = PictureData(picture_task(), 20, 0, CPU)
    ((_, labels),) = take(data.val, 1)
    assert sorted(labels.tolist()) == list(range(7))


def test_calibration_takes_training_pictures_in_an_order_of_its_own():
    data = PictureData(picture_task(), 4, 0, CPU)
    calibration = data.calibration()
    before = data.train.state_dict()
    train, beside = take(data.train, 5), take(calibration, 5)
    assert [labels.tolist() for _, labels in train] != [labels.tolist() for _, labels in beside]
    assert before == {"position": 0}
    assert calibration.state_dict() == {"position": 5}


@pytest.mark.parametrize("size", [24, 1000])
def test_a_batch_larger_than_the_data_is_refused_with_both_numbers(size):
    with pytest.raises(ValueError, match=rf"batch_size must .* train data \(23 pictures\), got {size}"):
        open_data(picture_task(), size, 35, 0, CPU)


def test_evaluation_is_the_mean_over_every_picture_once_whatever_its_batch(monkeypatch):
    task = picture_task(held_out=11)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(90, 23))
    data = PictureData(task, 4, 0, CPU)
    logits = model(data.normalise(task.test.images))
    right = (logits.argmax(1) == task.test.labels).sum().item()
    expected = cross_entropy(logits, task.test.labels).item(), 100 * right / 11
    for batch in (1000, 11, 4):
        monkeypatch.setattr("mlrsnet_lab.feeds.pictures.EVAL_BATCH", batch)
        assert data.evaluate(model, "test") == pytest.approx(expected, rel=1e-5)
    assert data.evaluate(model, "val") != data.evaluate(model, "test")


# Text


def text_task(train=400, val=61, test=73, vocabulary=11):
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randint(vocabulary, (count,), generator=generator) for count in (train, val, test)]
    return TextDataset("made-up", tuple(map(str, range(vocabulary))), *parts)


class Spy(nn.Module):
    """A language model that remembers what it was given; its memory counts its calls."""

    def __init__(self):
        super().__init__()
        self.seen, self.memories = [], []

    def initial_state(self, batch, device):
        return (torch.zeros(1, batch, 1),)

    def forward(self, tokens, state):
        self.seen.append(tokens.clone())
        self.memories.append(float(state[0].mean()))
        return torch.zeros(*tokens.shape, 11), (state[0] + 1,)


class Copyist(Spy):
    """Is sure that the next token is the one that the text has there."""

    def __init__(self, text):
        super().__init__()
        self.follows = dict(pairwise(text.tolist()))

    def forward(self, tokens, state):
        logits = torch.zeros(*tokens.shape, 11)
        for place in np.ndindex(*tokens.shape):
            logits[(*place, self.follows[int(tokens[place])])] = 100.0
        return logits, state


def read(feed, model, number):
    losses = []
    for _ in range(number):
        feed.prepare()
        losses.append(feed.loss(model).item())
    return losses


def test_windows_of_a_text_follow_each_other_without_a_gap():
    task, model = text_task(), Spy()
    feed = TextFeed(task.train, 4, 7, CPU, "train")
    assert feed.steps == 99 // 7
    read(feed, model, feed.steps)
    columns = torch.cat(model.seen)
    assert columns.shape == (98, 4)
    for column in range(4):
        assert columns[:, column].tolist() == task.train[column * 100 : column * 100 + 98].tolist()


def test_the_target_is_the_next_token():
    text = torch.arange(40 * 11) % 11
    feed = TextFeed(text, 3, 5, CPU, "train")
    assert read(feed, Copyist(text), feed.steps) == pytest.approx([0.0] * feed.steps, abs=1e-6)
    assert min(read(feed, Copyist(text.flip(0)), 3)) > 50  # the same model, told of another order, is wrong


def test_memory_is_carried_within_an_epoch_and_empty_at_its_beginning():
    feed, model = TextFeed(text_task(140).train, 4, 7, CPU, "train"), Spy()
    assert feed.steps == 4
    read(feed, model, 9)
    assert model.memories == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert torch.equal(model.seen[0], model.seen[4])  # an epoch begins at the text's beginning


@pytest.mark.parametrize("name", ["lstm", "transformer"])
@pytest.mark.parametrize("done", [0, 1, 3, 4, 6, 8])
def test_a_text_goes_on_after_a_stop_with_the_same_words_and_memory(name, done):
    task = text_task(140)
    torch.manual_seed(0)
    model = build_text(name, 11, dropout=0.0, **({"hidden": 6} if name == "lstm" else {"width": 8, "layers": 1}))
    whole = read(TextFeed(task.train, 4, 7, CPU, "train"), model, 10)
    stopped = TextFeed(task.train, 4, 7, CPU, "train")
    assert read(stopped, model, done) == whole[:done]
    state = copy.deepcopy(stopped.state_dict())
    resumed = TextFeed(task.train, 4, 7, CPU, "train")
    resumed.load_state_dict(state)
    assert read(resumed, model, 10 - done) == whole[done:]


def test_an_lstm_can_be_trained_window_after_window_without_gradients_into_the_one_before():
    model = build_text("lstm", 11, hidden=6, dropout=0.0)
    feed = TextFeed(text_task().train, 4, 7, CPU, "train")
    for _ in range(3):
        feed.prepare()
        feed.loss(model).backward()  # would fail at the second backward through the first window
    assert not any(tensor.requires_grad for tensor in feed.memory)


@pytest.mark.parametrize(("batch_size", "length"), [(1, 7), (4, 7), (5, 70), (40, 3)])
@pytest.mark.parametrize("part", ["val", "test"])
def test_the_score_of_a_text_is_one_long_pass_over_every_predicted_token(batch_size, length, part):
    """No window's last token is lost, the shorter last window counts by its tokens, and a text too short for so many
    columns is read in fewer."""
    task = text_task(train=2000, val=401, test=61)
    torch.manual_seed(0)
    model = build_text("lstm", 11, hidden=6).eval()
    text = getattr(task, part)
    columns = min(batch_size, len(text) // 2)
    rows = len(text) // columns
    whole = text[: rows * columns].view(columns, rows).t()
    with torch.no_grad():
        logits, _ = model(whole[:-1], model.initial_state(columns, "cpu"))
    targets = whole[1:]
    found = TextData(task, batch_size, length, CPU).evaluate(model, part)
    assert found.loss == pytest.approx(cross_entropy(logits.flatten(0, 1), targets.flatten()).item(), rel=1e-5)
    assert found.metric == math.exp(found.loss)


def test_scoring_a_text_does_not_touch_the_memory_of_the_training():
    task = text_task()
    data = TextData(task, 4, 7, CPU)
    model = build_text("lstm", 11, hidden=6)
    read(data.train, model, 3)
    before = copy.deepcopy(data.train.state_dict())
    data.evaluate(model.eval(), "val")
    after = data.train.state_dict()
    assert before["position"] == after["position"]
    assert all(torch.equal(a, b) for a, b in zip(before["memory"], after["memory"], strict=True))


@pytest.mark.parametrize(("batch_size", "length"), [(200, 2), (4, 100), (401, 1)])
def test_a_text_too_short_for_one_batch_is_refused_with_its_numbers(batch_size, length):
    with pytest.raises(ValueError, match=rf"\(400 tokens in sequences of {length}\), got {batch_size}"):
        TextData(text_task(), batch_size, length, CPU)


# Pictures from a folder


@pytest.fixture
def folder_task(tmp_path):
    """14 + 6 pictures of two classes; grey ones, whose shade tells which picture it is."""
    shade = 0
    for part, count in (("train", 10), ("test", 3)):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(count):
                shade += 7
                pixels = np.full((9, 12, 3), shade, dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{number}.png")
    return datasets.load(str(tmp_path), size=4, val_size=6)


def stream(feed, number):
    found = []
    for _ in range(number):
        feed.prepare()
        found.append((feed.images.clone(), feed.labels.clone()))
    return found


def shades(batches):
    return [int(image[0, 0, 0]) for images, _ in batches for image in images]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_streamed_epoch_shows_every_picture_at_most_once(folder_task, workers):
    feed = StreamedFeed(folder_task, "train", 4, 0, CPU, workers)
    assert feed.steps == 3
    epochs = [shades(stream(feed, 3)) for _ in range(2)]
    assert all(len(set(epoch)) == 12 for epoch in epochs)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(("done", "workers"), [(0, 0), (2, 0), (3, 0), (4, 1), (5, 0)])
def test_a_streamed_run_goes_on_after_a_stop_with_the_same_batches(tmp_path, folder_task, done, workers):
    for path in tmp_path.rglob("*.png"):  # not flat, so that crops and flips show
        pixels = np.random.default_rng(int(path.stem)).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    whole = stream(StreamedFeed(folder_task, "train", 4, 0, CPU, 0), 8)
    stopped = StreamedFeed(folder_task, "train", 4, 0, CPU, workers)
    assert equal(stream(stopped, done), whole[:done])
    resumed = StreamedFeed(folder_task, "train", 4, 0, CPU, workers)
    resumed.load_state_dict(copy.deepcopy(stopped.state_dict()))
    assert equal(stream(resumed, 8 - done), whole[done:])
    assert not equal(whole, stream(StreamedFeed(folder_task, "train", 4, 1, CPU, 0), 8))


def test_streamed_evaluation_is_the_mean_over_every_picture(folder_task):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    data = StreamedData(folder_task, 4, 0, CPU)
    data.workers = 0  # processes would take longer than the test
    (images, labels), *_ = folder_task.batches("test", 6, order=None, seed=0, workers=0)
    logits = model(data.train.normalise(images))
    found = data.evaluate(model, "test")
    assert found.loss == pytest.approx(cross_entropy(logits, labels).item(), rel=1e-5)
    assert found.metric == pytest.approx(100 * (logits.argmax(1) == labels).float().mean().item(), rel=1e-5)


def test_a_streamed_loss_is_that_of_the_normalised_batch(folder_task):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    feed = StreamedFeed(folder_task, "train", 4, 0, CPU, 0)
    ((images, labels),) = stream(feed, 1)
    mean, std = torch.tensor(folder_task.mean), torch.tensor(folder_task.std)
    expected = cross_entropy(model(((images.float() - mean) / std).permute(0, 3, 1, 2)), labels)
    assert feed.loss(model).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_folder_with_less_than_a_batch_is_refused(folder_task):
    with pytest.raises(ValueError, match=r"train data \(14 pictures\), got 15"):
        StreamedFeed(folder_task, "train", 15, 0, CPU, 0)
