import pytest

from mlrsnet import Schedule
from mlrsnet.files import names
from mlrsnet.files.names import list_schedules
from mlrsnet.files.storage import ScheduleError
from mlrsnet.nets import LSTMNet


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MLRSNET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_kept_schedule_loads_by_name_and_by_path(home):
    schedule = Schedule(LSTMNet(4))
    schedule.save(home / "mine.safetensors")
    assert Schedule.load("mine").fingerprint() == schedule.fingerprint()
    assert Schedule.load(home / "mine.safetensors").fingerprint() == schedule.fingerprint()


def test_a_missing_name_lists_what_there_is(home):
    Schedule(LSTMNet(4)).save(home / "mine.safetensors")
    with pytest.raises(ScheduleError, match=r"there is no schedule named 'nope'; known: .*mine"):
        Schedule.load("nope")


def test_a_missing_file_is_not_taken_for_a_name(home):
    with pytest.raises(ScheduleError, match="there is no schedule file"):
        Schedule.load("folder/nope.safetensors")


def test_every_shipped_schedule_loads():
    for file in names.SHIPPED.glob("*.safetensors"):
        assert Schedule.load(file).card.name == file.stem


def test_the_names_that_load_are_listed(home):
    Schedule(LSTMNet(4)).save(home / "mine.safetensors")
    assert list_schedules() == sorted(
        ["mine", "universal", *(file.stem for file in names.SHIPPED.glob("*.safetensors"))]
    )
    assert "universal" in list_schedules()
