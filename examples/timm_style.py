"""A loop in timm's style: timm's model, mixup, loss and meters, with gradient accumulation."""

import timm
import timm.optim
import torch
from sklearn.datasets import load_digits
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.utils import AverageMeter, accuracy
from torch.utils.data import DataLoader, TensorDataset

import mlrsnet

EPOCHS, ACCUMULATE = 10, 2


def train_one_epoch(model, loader, optimizer, lr_scheduler, mixup, loss_fn):
    """timm's `train_one_epoch` without its options."""
    losses = AverageMeter()
    model.train()
    for index, (images, labels) in enumerate(loader):
        images, targets = mixup(images, labels)
        loss = loss_fn(model(images), targets)
        (loss / ACCUMULATE).backward()
        lr_scheduler.observe(loss)  # before dividing it
        losses.update(loss.item(), len(images))
        if (index + 1) % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()
    return losses.avg


@torch.no_grad()
def validate(model, loader):
    """Top-1 accuracy."""
    top1 = AverageMeter()
    model.eval()
    for images, labels in loader:
        top1.update(accuracy(model(images), labels)[0].item(), len(images))
    return top1.avg


torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train = DataLoader(TensorDataset(images[:1408], labels[:1408]), batch_size=32, shuffle=True, drop_last=True)
test = DataLoader(TensorDataset(images[1408:], labels[1408:]), batch_size=128)

model = timm.create_model(
    "vit_tiny_patch16_224", img_size=8, patch_size=2, in_chans=1, embed_dim=48, depth=2, num_heads=3, num_classes=10
)
optimizer = torch.optim.AdamW(timm.optim.param_groups_weight_decay(model, 0.05), lr=1e-3)
lr_scheduler = mlrsnet.LearnedLR(optimizer, total_steps=EPOCHS * len(train) // ACCUMULATE)
mixup = Mixup(mixup_alpha=0.2, label_smoothing=0.1, num_classes=10)

for epoch in range(EPOCHS):
    loss = train_one_epoch(model, train, optimizer, lr_scheduler, mixup, SoftTargetCrossEntropy())
    lr = lr_scheduler.get_last_lr()[0]
    print(f"epoch {epoch}: loss {loss:.3f}, LR {lr:.5f}, accuracy {validate(model, test):.1f} %")
