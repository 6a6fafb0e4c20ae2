"""Who does the work of a campaign: this process, several on this machine, or a Ray cluster."""

from mlrsnet_lab.executors.crew import Counts, Crew, Done, WorkerLostError, Workers
from mlrsnet_lab.executors.executor import Executor
from mlrsnet_lab.executors.here import Here
from mlrsnet_lab.executors.work import Begun, Died, Place, Work

__all__ = ["Begun", "Counts", "Crew", "Died", "Done", "Executor", "Here", "Place", "Work", "WorkerLostError", "Workers"]
