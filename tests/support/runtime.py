"""The runtime under test: the machine's apptainer, or the program that the variable SIFMOD_TEST_RUNTIME names.

What tests need to know of it is here, and only here. SINGULARITYCE is a second one, which the tests of SingularityCE
run whatever is chosen: see there.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sifmod.module.plan import Runtime

VARIABLE = "SIFMOD_TEST_RUNTIME"
_LOGIN_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class RuntimeUnderTest:
    """One program, and how it differs from the others."""

    path: str
    kind: Literal["apptainer", "singularity"]

    @property
    def prefix(self) -> str:
        """What the variables begin with that it reads first."""
        return "APPTAINER" if self.kind == "apptainer" else "SINGULARITY"

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What all variables begin with that a module sets for it."""
        return ("SINGULARITY", "APPTAINER") if self.kind == "apptainer" else ("SINGULARITY",)

    @property
    def keyring(self) -> str:
        """The variable that names the directory of its keys."""
        return "APPTAINER_KEYSDIR" if self.kind == "apptainer" else "SINGULARITY_SYPGPDIR"

    @property
    def compression(self) -> str:
        """What it starts, and is fastest to write and to read."""
        return "zstd" if self.kind == "apptainer" else "gzip"

    @property
    def binds_squashfs(self) -> bool:
        """Whether it can bind a squashfs file, which SingularityCE without setuid cannot."""
        return self.kind == "apptainer"

    @property
    def builds(self) -> str:
        """The directory below build/ of the images that it has built."""
        return "tests" if self.kind == "apptainer" else "tests-singularity"

    @property
    def fast(self) -> tuple[str, ...]:
        """What makes its `build` several times as fast, and what it builds faster to read."""
        return ("--mksquashfs-args=-comp zstd -Xcompression-level 3",) if self.compression == "zstd" else ()

    @property
    def push(self) -> tuple[str, ...]:
        """How it pushes to a registry on this machine without TLS, which SingularityCE does without being told."""
        return ("push", "--no-https") if self.kind == "apptainer" else ("push",)

    @property
    def plan(self) -> Runtime:
        """As a plan has it."""
        return Runtime(self.kind, self.path)

    @property
    def userns(self) -> dict[str, str]:
        """What has root of a virtual machine, who may lack CAP_SYS_RESOURCE, start containers; both are read."""
        return {"APPTAINER_USERNS": "1", "SINGULARITY_USERNS": "1"}

    @property
    def search_path(self) -> str:
        """PATH at login, with this runtime as `singularity`, and as `apptainer` where it is that."""
        own = str(Path(self.path).parent)
        return _LOGIN_PATH if own in _LOGIN_PATH.split(":") else f"{own}:{_LOGIN_PATH}"


def _chosen() -> RuntimeUnderTest:
    """The one that is named, else the machine's; without any the path is empty, and what needs it fails."""
    named = os.environ.get(VARIABLE) or os.environ.get("SIFMOD_RUNTIME")  # which conftest.py sets for children
    path = named or shutil.which("apptainer") or shutil.which("singularity") or ""
    said = subprocess.run((path, "--version"), capture_output=True, text=True, check=True).stdout if path else ""
    return RuntimeUnderTest(path, "apptainer" if said.startswith("apptainer ") or not said else "singularity")


NAMED = VARIABLE in os.environ
RUNTIME = _chosen()
