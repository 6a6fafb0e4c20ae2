"""A script as in Transformers' examples: it parses `TrainingArguments` from its command line and knows nothing of mlrsnet.

It prints the LRs that its log shows. `--no_count` is an argument of its own.
"""

import json
from dataclasses import dataclass

from trainer_fits import classifier, labelled, logged
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    no_count: bool = False


def main():
    model_args, training_args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    model = classifier(**({"accepts_loss_kwargs": False} if model_args.no_count else {}))
    trainer = Trainer(model, training_args, train_dataset=labelled())
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    print(json.dumps({"lrs": logged(trainer), "scheduler": type(trainer.lr_scheduler).__name__}))


if __name__ == "__main__":
    main()
