"""A small network of matrix products only, so that hundreds of copies can train at once (`mlrsnet_lab.horizon`)."""

from torch import Tensor, nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import Shape, normalisation


class PatchNet(nn.Module):
    """Pictures cut into patches, one linear layer for all patches, one over all of them, one for the classes.

    Args:
        shape: of a picture; what is left beside whole patches is not looked at.
        num_classes: outputs.
        patch: side of a patch.
        width: features of a patch.
        hidden: features of a picture.
        norm: `batch`, `layer` or `none`, before each ReLU.
    """

    def __init__(
        self,
        shape: Shape,
        num_classes: int,
        *,
        patch: int = 4,
        width: int = 32,
        hidden: int = 64,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        channels, height, columns = shape
        self.patch = checks.whole_number("patch", patch)
        if patch > min(height, columns):
            raise ValueError(f"patch must be at most the picture's sides {height} and {columns}, got {patch}")
        patches = (height // patch) * (columns // patch)
        self.embed = nn.Linear(channels * patch**2, checks.whole_number("width", width))
        self.after_embed = nn.Sequential(*normalisation(norm, width), nn.ReLU())
        self.mix = nn.Linear(patches * width, checks.whole_number("hidden", hidden))
        self.after_mix = nn.Sequential(*normalisation(norm, hidden), nn.ReLU())
        self.out = nn.Linear(hidden, num_classes)

    def forward(self, pictures: Tensor) -> Tensor:
        """(B, C, H, W) to logits."""
        side = self.patch
        x = pictures.unfold(2, side, side).unfold(3, side, side)  # (B, C, H / side, W / side, side, side)
        x = self.embed(x.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))
        x = self.after_embed(x.flatten(0, 1)).reshape(len(pictures), -1)
        return self.out(self.after_mix(self.mix(x)))
