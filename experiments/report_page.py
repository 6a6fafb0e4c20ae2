"""The picture of a report page, taken with chromium: what `mlrsnet report` shows."""

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments import results
from experiments.drawing import fewer_colours
from experiments.pictures import PICTURES
from mlrsnet_lab import report

FOLDER, WIDTH, HEIGHT = "table1_smoke", 1100, 1522


def draw(out: Path) -> None:
    """The top of the page."""
    browser = shutil.which("chromium")
    if browser is None:
        raise FileNotFoundError(
            "the picture of a report needs chromium, which is not installed: apt-get install chromium"
        )
    with TemporaryDirectory() as folder:
        page, _ = report.save_report(results.report(FOLDER), Path(folder))
        how = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"]
        command = [browser, *how, f"--screenshot={out.resolve()}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    fewer_colours(out)


def write() -> list[Path]:
    """Take it anew; browsers differ, so this is not part of `all`."""
    draw(PICTURES / "report.png")
    return [PICTURES / "report.png"]
