"""Build the wheel: `contracts` goes inside it, as `runwire._contracts`, and so do the SDKs that `runwire new` copies.

In a checkout `runwire` imports the package `contracts` that lies beside it. In the wheel that name would collide with
a package of the user's own, so each import of it is rewritten. Lines keep their numbers, so tracebacks stay right.
"""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_IMPORT = re.compile(r"^( *)from contracts(?=[. ])", re.MULTILINE)


class ContractsInside(BuildHookInterface[Any]):
    """Adds `contracts`, and the modules of `runwire` that import it as they read in the wheel."""

    _rewritten: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Prepare a build. An editable installation imports from the checkout and needs nothing."""
        if version == "editable":
            return
        root, self._rewritten = Path(self.root), Path(tempfile.mkdtemp())
        included = build_data["force_include"]
        included[str(root / "contracts")] = "runwire/_contracts"
        for part in ("go", "typescript/src", "typescript/package.json", "typescript/tsconfig.json"):
            included[str(root / "sdk" / part)] = f"runwire/_sdk/{part}"
        for module in sorted((root / "runwire").rglob("*.py")):
            text, count = _IMPORT.subn(r"\1from runwire._contracts", module.read_text(encoding="utf-8"))
            if count:
                target = self._rewritten / module.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
                included[str(target)] = module.relative_to(root).as_posix()

    # The signature is the hook's.
    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the rewritten modules."""
        if self._rewritten is not None:
            shutil.rmtree(self._rewritten)
