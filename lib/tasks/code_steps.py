"""What the families whose artifacts are files share: the words for actions, paths in patches and texts.

Not covered: reading records (one module a family).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LEGEND = (
    "read: open a file. edit: change a file. create: add a file. delete: remove a file. run_test: run a file of tests. "
    "configure: change settings or dependencies."
)
"""What each action means where artifacts are files; part of every local view of these families."""

_HEADER = re.compile(r"^diff --git a/(.+?) b/(.+)$", re.M)
_PATH = re.compile(r"(?<![\w/.-])[\w.-]+(?:/[\w.-]+)+\.\w{1,5}(?![\w/])")


def patched_files(patch: str) -> dict[str, str]:
    """Return what a patch in git's format does with each file: ``create``, ``delete`` or ``edit``.

    A renamed file counts under its old name, which is the one that is there to be chosen.

    >>> patched_files(
    ...     "diff --git a/x.py b/x.py\\nnew file mode 100644\\n--- /dev/null\\n+++ b/x.py\\n@@ -0,0 +1 @@\\n+1\\n"
    ... )
    {'x.py': 'create'}
    """
    found = {}
    headers = list(_HEADER.finditer(patch))
    ends = [*(header.start() for header in headers[1:]), len(patch)]
    for header, end in zip(headers, ends[: len(headers)], strict=True):
        body = patch[header.end() : end]
        lines = body.split("\n@@", 1)[0].split("\n")  # before the first hunk, where no code can look like a header
        kind = (
            "create" if any(line.startswith("new file mode") or line == "--- /dev/null" for line in lines) else "edit"
        )
        if any(line.startswith("deleted file mode") or line == "+++ /dev/null" for line in lines):
            kind = "delete"
        found[header[1]] = kind
    return found


def paths_in(text: str, folders: Iterable[str] = ()) -> list[str]:
    """Return the paths of files that a text names, in order; with `folders`, only those whose first part is one of them.

    >>> paths_in("see lib/a.py and /usr/lib/b.py, lib/c", ["lib"])
    ['lib/a.py']
    """
    wanted = set(folders)
    found = dict.fromkeys(match[0] for match in _PATH.finditer(text))
    return [path for path in found if not wanted or path.split("/")[0] in wanted]
