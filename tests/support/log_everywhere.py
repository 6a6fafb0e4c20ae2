"""One training that logs to every logger at once, in the folder it runs in: `log_everywhere.py lightning|transformers LOGGER...`.

It writes the LRs that the optimizer used to `used.json`. A process of its own, because wandb and MLflow keep their first folder.
"""

import json
import sys
from pathlib import Path

FOLDER = Path.cwd()


def lightning(names):
    """The LRs of a fit with LearningRateMonitor."""
    from lightning.pytorch import loggers
    from lightning.pytorch.callbacks import LearningRateMonitor
    from lightning_fits import Learned, fit

    makers = {
        "tensorboard": lambda: loggers.TensorBoardLogger(FOLDER),
        "wandb": lambda: loggers.WandbLogger(save_dir=FOLDER, offline=True),
        "mlflow": lambda: loggers.MLFlowLogger(tracking_uri=(FOLDER / "mlruns").as_uri()),
    }
    module = Learned()
    fit(module, [LearningRateMonitor("step")], logger=[makers[name]() for name in names], log_every_n_steps=1)
    return module.used


def transformers(names):
    """The LRs of a training with report_to."""
    from trainer_fits import Watch, classifier, labelled, settings
    from transformers import Trainer

    from mlrsnet.integrations.transformers import register

    register()
    watch, arguments = Watch(), settings(FOLDER / "run", report_to=names, lr_scheduler_type="learned")
    Trainer(classifier(), arguments, train_dataset=labelled(), callbacks=[watch]).train()
    return watch.lrs


if __name__ == "__main__":
    used = {"lightning": lightning, "transformers": transformers}[sys.argv[1]](sys.argv[2:])
    (FOLDER / "used.json").write_text(json.dumps([lrs[0] for lrs in used]))
