"""Who does the work of a campaign: several processes on this machine, or a Ray cluster."""

from mlrsnet_lab.executors.crew import Counts, Crew, Done, WorkerLostError, Workers
from mlrsnet_lab.executors.executor import Executor
from mlrsnet_lab.executors.work import Begun, Died, Place, Work

__all__ = ["Begun", "Counts", "Crew", "Died", "Done", "Executor", "Place", "Work", "WorkerLostError", "Workers"]
