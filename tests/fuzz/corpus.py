"""Inputs that fuzzing found, one small one for each way in which a reader ended: all of them in corpus.zip."""

import hashlib
import re
import zipfile
from pathlib import Path

ARCHIVE = Path(__file__).with_name("corpus.zip")
WHEN = (1980, 1, 1, 0, 0, 0)
"""The time of every member, so that equal inputs make an equal archive."""


def kept(reader: str) -> list[bytes]:
    """The inputs of a reader, in the order of their names."""
    return [content for name, content in _members().items() if name.startswith(_folder(reader))]


def keep(reader: str, contents: list[bytes]) -> None:
    """Replace the inputs of a reader."""
    others = {name: content for name, content in _members().items() if not name.startswith(_folder(reader))}
    mine = {_folder(reader) + hashlib.sha256(content).hexdigest()[:12]: content for content in contents}
    part = ARCHIVE.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted((others | mine).items()):
            archive.writestr(zipfile.ZipInfo(name, WHEN), content, zipfile.ZIP_DEFLATED)
    part.replace(ARCHIVE)


def _members() -> dict[str, bytes]:
    if not ARCHIVE.is_file():
        return {}
    with zipfile.ZipFile(ARCHIVE) as archive:
        return {name: archive.read(name) for name in sorted(archive.namelist())}


def _folder(reader: str) -> str:
    return re.sub(r"\W+", "_", reader) + "/"
