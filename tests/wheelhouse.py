"""Build tiny wheels for tests of fetching: a zip with the metadata that pip wants, nothing else."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(folder: Path, project: str, version: str, members: Mapping[str, bytes]) -> Path:
    """Write `project`-`version` with `members` (path in the wheel -> bytes) into `folder` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    module = project.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path
