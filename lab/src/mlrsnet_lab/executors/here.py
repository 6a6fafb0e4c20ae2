"""This process, one piece of work after the other."""

from mlrsnet_lab.devices import device_name, resolve
from mlrsnet_lab.executors.crew import Deliver
from mlrsnet_lab.executors.work import Place, Returned, Told, Work


class Here:
    """The only worker is this process. Errors and Ctrl-C go through as they are."""

    size, apart = 1, False

    def __init__(self, device: str) -> None:
        self.device = str(resolve(device))
        self.work: Work | None = None

    def describe(self) -> str:
        """The device's name."""
        return device_name(resolve(self.device))

    def start(self, number: int, work: Work) -> None:
        """Keep it until `wait`."""
        self.work = work

    def wait(self, deliver: Deliver, seconds: float) -> None:
        """Do it."""
        assert self.work is not None
        place = Place(self.device, lambda event: deliver(0, Told(event)))
        deliver(0, Returned(self.work.function(place, *self.work.arguments)))

    def ask_to_stop(self, number: int) -> None:
        """Nothing runs when somebody else could ask."""

    def kill(self, number: int) -> None:
        """Nothing to end."""

    def close(self) -> None:
        """Nothing to end."""
