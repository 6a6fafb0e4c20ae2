"""TRL's `SFTTrainer`, which derives from the Trainer. Run by hand: TRL is not among what `make setup` installs."""

import pytest
import torch
from hand_loops import assert_ended
from trainer_fits import Watch, logged, writer

pytest.importorskip("trl")
from datasets import Dataset
from datasets.table import InMemoryTable
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from mlrsnet import LearnedLR
from mlrsnet.integrations.transformers import register

register()
WORDS, LENGTH = 32, 8


def sft(folder, watch):
    """A supervised fine-tuning of a tiny GPT-2 on sequences that are tokens already."""
    rows = torch.randint(3, WORDS, (64, LENGTH), generator=torch.Generator().manual_seed(0)).tolist()
    # With a fingerprint of its own: the one that datasets would compute needs to pickle a table, which not every version can.
    data = Dataset(InMemoryTable.from_pydict({"input_ids": rows}), fingerprint="rows")
    words = {"<pad>": 0, "<eos>": 1} | {f"w{i}": i for i in range(2, WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    arguments = {
        "use_cpu": True,
        "max_steps": 6,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "logging_steps": 1,
        "save_steps": 4,
        "report_to": [],
        "bf16": False,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "dataset_kwargs": {"skip_prepare_dataset": True},
    }
    return SFTTrainer(
        writer(),
        SFTConfig(str(folder), **arguments, lr_scheduler_type="learned"),
        train_dataset=data,
        processing_class=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"),
        callbacks=[watch],
    )


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_sft_ends_with_its_schedule_is_told_its_losses_and_resumes(tmp_path):
    watch = Watch()
    trainer = sft(tmp_path, watch)
    trainer.train()
    assert isinstance(trainer.lr_scheduler, LearnedLR)
    assert_ended(trainer.lr_scheduler, watch.lrs)
    assert trainer.lr_scheduler.status()["level"] != 1.0
    again = sft(tmp_path, Watch())
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert logged(again) == logged(trainer)
