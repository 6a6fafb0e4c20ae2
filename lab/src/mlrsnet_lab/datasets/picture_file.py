"""One picture from disk, which anyone may have made."""

import io
import os
import warnings
from typing import Any

from mlrsnet.files.untrusted import open_regular, reason
from mlrsnet_lab.datasets.shards import Inside

FORMATS = ("JPEG", "PNG", "PPM", "BMP", "WEBP", "TIFF", "GIF")
"""What a file may hold, whatever its name says. PIL knows others too, and would run Ghostscript for an EPS."""


def read_picture(path: str | os.PathLike[str] | Inside) -> Any:
    """A picture in colours, from a file or from inside a shard, or one ValueError.

    One of more pixels than PIL's `MAX_IMAGE_PIXELS` (89 million) is refused before it is decoded.
    """
    from PIL import Image

    try:
        with (
            io.BytesIO(path.read()) if isinstance(path, Inside) else open_regular(path) as file,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # about harmless faults of a file; too many pixels are none
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as picture:
                return picture.convert("RGB")
    except Exception as error:  # a file that is not a picture can fail in any way
        raise ValueError(f"{path} cannot be read as a picture ({reason(error)}): replace or remove it") from None
