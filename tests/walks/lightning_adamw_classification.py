"""A multilayer perceptron learns handwritten digits: Lightning, AdamW, label smoothing."""

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

import mlrsnet


class Classifier(LightningModule):
    def __init__(self, schedule):
        super().__init__()
        self.schedule = schedule
        self.net = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y, label_smoothing=0.1)
        if self.schedule == "learned":
            self.lr_schedulers().observe(loss)
        return loss

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("wrong", 100 * (self.net(x).argmax(1) != y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=0.01)
        steps = self.trainer.estimated_stepping_batches
        if self.schedule == "learned":
            return [optimizer], [mlrsnet.LearnedLR(optimizer, total_steps=steps)]
        lr = OneCycleLR(optimizer, max_lr=1e-3, total_steps=steps, pct_start=0.05, cycle_momentum=False)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": lr, "interval": "step"}}


def train(schedule, seed):
    """The share of wrong test images, in percent."""
    seed_everything(seed, verbose=False)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    train_x, test_x, train_y, test_y = train_test_split(images.float() / 16, labels, train_size=0.3, random_state=seed)
    trainer = Trainer(
        max_epochs=40,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Classifier(schedule)
    trainer.fit(model, DataLoader(TensorDataset(train_x, train_y), batch_size=32, shuffle=True))
    (result,) = trainer.test(model, DataLoader(TensorDataset(test_x, test_y), batch_size=len(test_y)), verbose=False)
    return result["wrong"]


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: {train(schedule, seed=0):.2f} % wrong")
