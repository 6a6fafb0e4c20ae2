import pytest
from commands import complaint, everything_below, run
from lab_commands import status

from mlrsnet import Schedule
from mlrsnet_lab.records import CHECKPOINT

pytestmark = pytest.mark.usefixtures("own_folder")

META = ("metatrain", "--classes", "012", "--every", "2", "--batch-size", "32", "--epochs")


def test_metatrain_ends_in_a_schedule_and_goes_on_after_being_stopped(capsys, tmp_path, ctrl_c):
    code, out, _ = run(capsys, *META, 3, "--out", "whole.safetensors")
    assert code == 0
    assert "Algorithm 1: T_val = 2" in out
    assert "schedule: whole.safetensors" in out
    assert not (tmp_path / "whole.safetensors.run").exists()

    ctrl_c(17)
    code, _, err = run(capsys, *META, 3, "--out", "parts.safetensors")
    assert (code, err) == (130, "mlrsnet: interrupted; the same command continues where it stopped\n")
    assert status("parts.safetensors.run") == "interrupted"
    assert not (tmp_path / "parts.safetensors").exists()
    message = complaint(capsys, *META, 4, "--out", "parts.safetensors")
    assert "parts.safetensors.run holds a run with another spec (different: epochs)" in message
    assert run(capsys, *META, 3, "--out", "parts.safetensors")[0] == 0
    whole, parts = (Schedule.load(f"{name}.safetensors") for name in ("whole", "parts"))
    assert whole.fingerprint() == parts.fingerprint()
    assert whole.card == parts.card


@pytest.mark.parametrize("objective", ["greedy", "horizon"])
def test_metatrain_does_not_overwrite_a_schedule(capsys, tmp_path, objective):
    (tmp_path / "mine.safetensors").write_bytes(b"mine")
    message = complaint(capsys, "metatrain", "--objective", objective, "--out", "mine.safetensors")
    assert "out must be a new file, but mine.safetensors exists: choose another name, or delete it" in message
    assert everything_below(tmp_path) == {tmp_path / "mine.safetensors": b"mine"}


@pytest.mark.parametrize(
    ("words", "card"),
    [
        (["--classes", "012"], "digits 012"),
        (["--classes", "9,1,4"], "digits 9,1,4"),
        (["--name", "mine", "--net", "mlp", "--optimizer", "adamw", "--model", "mlp"], "mine"),
    ],
)
def test_metatrain_names_its_schedule_after_what_it_has_seen(capsys, words, card):
    code, out, err = run(capsys, "metatrain", "--epochs", 1, *words)
    assert code == 0, err
    found = Schedule.load("learned.safetensors")
    assert found.card.name == card
    assert found.card.name in out


@pytest.mark.filterwarnings("ignore:a meta-update was skipped", "ignore:a loss was not finite")
@pytest.mark.filterwarnings("ignore:10 losses in a row were not finite")
def test_metatrain_says_that_a_training_diverged(capsys, tmp_path):
    message = complaint(capsys, "metatrain", "--epochs", 2, "--weight-decay", "1e30")
    assert "the training diverged after 1 epochs: see learned.safetensors.run, and change its settings" in message
    assert not (tmp_path / "learned.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--classes", "0-4"],
            "--classes must be digits written together, such as 01234, or numbers with commas, got '0-4'",
        ),
        (["--classes", "00"], "classes must be"),
        (["--classes", "7"], "classes must be"),
        (["--epochs", "0"], "epochs must be a whole number >= 1, got 0"),
        (["--optimizer", "rprop"], "optimizer must be one of sgd, sgdm, adam, adamw"),
        (["--net", "gru"], "net must be one of lstm, mlp; got 'gru'"),
        (["--meta-lr", "-1"], "meta_lr must be > 0"),
        (
            ["--batch-size", "5000"],
            "batch_size must leave at least one full batch of the train data (1200 pictures), got 5000",
        ),
        (["--out", "."], "out must be a file, got the folder ."),
        (["--task", "nope"], "task must be one of digits, cifar10"),
        (["--device", "gpu"], "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
    ],
)
def test_metatrain_names_a_bad_argument_and_leaves_nothing(capsys, tmp_path, words, message):
    assert message in complaint(capsys, "metatrain", *words)
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_named(capsys, tmp_path, ctrl_c):
    ctrl_c(2)
    assert run(capsys, *META, 2, "--out", "a.safetensors")[0] == 130
    (tmp_path / "a.safetensors.run" / CHECKPOINT).write_bytes(b"nothing")
    message = complaint(capsys, *META, 2, "--out", "a.safetensors")
    assert "a.safetensors.run/checkpoint.pt is not a checkpoint of this run" in message
    assert "delete it to start over" in message
    (tmp_path / "a.safetensors.run" / CHECKPOINT).unlink()
    assert run(capsys, *META, 2, "--out", "a.safetensors")[0] == 0
