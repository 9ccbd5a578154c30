"""SingularityCE without setuid: the real one where the machine has it, else Apptainer held to what that one does.

`scripts/provision singularityce` unpacks a real one under /opt/singularityce. Debian has none any more, so that a fresh
machine may have none: then a program stands in for it that runs real containers with Apptainer, says that it is
SingularityCE 4.3.7, and does of what follows what 4.3.7 was seen to do: it reads no variable that begins with
APPTAINER, starts no image with zstd, and binds no squashfs.
"""

import shutil
from pathlib import Path

from sifmod.module.plan import Runtime
from support.runtime import RUNTIME

REAL = Path("/opt/singularityce/bin/singularity")
_STAND_IN = r"""#!/bin/sh
case $1 in
  --version) echo 'singularity-ce version 4.3.7'; exit ;;
  buildcfg) printf 'PACKAGE_NAME=singularity-ce\nLIBEXECDIR=/nonexistent\n'; exit ;;
esac
fail() {
  printf '\033[31mFATAL:   \033[0m container creation failed: %s\n\n\033[0m' "$1" >&2
  exit 255
}
for name in $(env | sed -n 's/^\(APPTAINER[A-Za-z0-9_]*\)=.*/\1/p'); do unset "$name"; done
if [ -n "${SINGULARITY_USERNS-}" ]; then export APPTAINER_USERNS="$SINGULARITY_USERNS"; fi
case "$1 $2" in
  *exec* | *run* | *shell*)
    case ${SINGULARITY_BIND-},${SINGULARITY_BINDPATH-} in *image-src=*) fail 'no loop devices available' ;; esac
    for word in "$@"; do
      case $word in *.sif) ;; *) continue ;; esac
      at=$(head -c 131072 "$word" | LC_ALL=C grep -abo hsqs | head -n 1) # the squashfs, and in it the compression
      if [ "$(od -An -tu1 -j $((${at%%:*} + 20)) -N1 "$word")" -eq 6 ]; then
        fail 'corrupted image: unknown compression algorithm value 6'
      fi
    done
    ;;
esac
exec {apptainer} "$@"
"""


def singularityce(directory: Path) -> Runtime:
    """The runtime, as a plan has it; `directory` is where every user may reach a stand-in."""
    if RUNTIME.kind == "singularity":
        return RUNTIME.plan
    if REAL.exists():
        return Runtime("singularity", str(REAL))
    apptainer = shutil.which("apptainer")
    assert apptainer, "apptainer is missing: run scripts/provision"
    program = directory / "singularity"
    program.write_text(_STAND_IN.replace("{apptainer}", apptainer))
    program.chmod(0o755)
    return Runtime("singularity", str(program))
