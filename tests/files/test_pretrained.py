import pytest

from mlrsnet import LSTMNet, Schedule, ScheduleError, load, pretrained


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MLRSNET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_kept_schedule_loads_by_name_and_by_path(home):
    schedule = Schedule(LSTMNet(4))
    schedule.save(home / "mine.safetensors")
    assert load("mine").fingerprint() == schedule.fingerprint()
    assert load(home / "mine.safetensors").fingerprint() == schedule.fingerprint()
    assert load(schedule) is schedule


def test_a_missing_name_lists_what_there_is(home):
    Schedule(LSTMNet(4)).save(home / "mine.safetensors")
    with pytest.raises(ScheduleError, match=r"there is no schedule named 'nope'; known: .*mine"):
        load("nope")


def test_a_missing_file_is_not_taken_for_a_name(home):
    with pytest.raises(ScheduleError, match="there is no schedule file"):
        load("folder/nope.safetensors")


def test_every_shipped_schedule_loads():
    for file in pretrained.SHIPPED.glob("*.safetensors"):
        assert Schedule.load(file).card.name == file.stem
