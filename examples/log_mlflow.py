"""Log every step's loss and LR to MLflow, in a folder `mlruns`: `mlflow server --backend-store-uri mlruns` shows them."""

import os

import mlflow
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

import mlrsnet

os.environ.setdefault(
    "MLFLOW_ALLOW_FILE_STORE", "true"
)  # version 3 asks for it; a server or a database does not need it
mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI", "file:mlruns"))

torch.manual_seed(0)
images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
batches = list(zip((images.float() / 16).split(100), labels.split(100), strict=True))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters())
lr = mlrsnet.LearnedLR(optimizer, total_steps=10 * len(batches))

mlflow.set_experiment("digits")
with mlflow.start_run():
    mlflow.log_params({"schedule": lr.law.name, "total_steps": lr.total_steps})
    for epoch in range(10):
        for step, (x, y) in enumerate(batches, start=epoch * len(batches)):
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            lr.step(loss)
            optimizer.step()
            mlflow.log_metrics({"loss": loss.item(), "lr": lr.get_last_lr()[0]}, step=step)
        print(f"epoch {epoch}: loss {loss.item():.3f}, LR {lr.get_last_lr()[0]:.5f}")
