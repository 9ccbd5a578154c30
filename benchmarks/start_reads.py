"""What starting a program asks of a file system: from a directory of packages, and from a SIF with a layer.

python benchmarks/start_reads.py SIF DIRECTORY [LAYER]

SIF is an image with Python at PYTHON, DIRECTORY its /opt unpacked, LAYER a layer.squashfs of `sifmod add`. System calls
are counted by strace: all calls, then opens, and of the others each path once, since a client keeps what it has asked
for; bytes are those that the page cache holds of a file that was thrown out of it before, so that
what the kernel reads ahead counts. Needs apptainer, strace and fincore.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHON = "/opt/miniconda3/envs/pytorch/bin/python"
KINDS = ("calls", "opened", "missing", "looked at", "listed")
_CALL = re.compile(r'^\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed).*?"([^"]*)"')


def main() -> None:
    """Print a table."""
    sif, directory, *layers = (Path(text).resolve() for text in sys.argv[1:])
    binds = ["-B", f"{directory}:/opt"]
    code = "import torch"
    print(f"| what | {' | '.join(KINDS)} | bytes read |\n|---|---|---|---|---|---|---|")
    _row("a directory of packages", code, sif, binds, ("/opt/",), [directory])
    _row("the SIF", code, sif, [], (str(sif),), [sif])
    for layer in layers:
        os.environ["APPTAINERENV_PYTHONPATH"] = "/user-layer/start"
        more = ["-B", f"{layer}:/user-layer:ro,image-src=/"]
        _row(
            "the SIF and a layer, lightning too", f"{code}, lightning", sif, more, (str(sif), str(layer)), [sif, layer]
        )


def _row(what: str, code: str, sif: Path, options: list[str], places: tuple[str, ...], files: list[Path]) -> None:
    command = ["apptainer", "-q", "exec", *options, str(sif), PYTHON, "-c", code]
    subprocess.run(command, check=True)  # what is made at the first start is there
    for path in files:
        _throw_out(path)
    subprocess.run(command, check=True)
    size = sum(_resident(path) for path in files)
    with tempfile.NamedTemporaryFile() as trace:
        subprocess.run(["strace", "-f", "-o", trace.name, "-e", "trace=%file,getdents64", *command], check=True)
        counts = _counted(Path(trace.name).read_text(errors="replace"), places)
    print(f"| {what} | {' | '.join(str(counts[kind]) for kind in KINDS)} | {size:,} |")


def _counted(trace: str, places: tuple[str, ...]) -> dict[str, int]:
    """Calls about paths in these places, by kind; within a container only those of the program."""
    inside = trace.find(f'execve("{PYTHON}"')
    counts = dict.fromkeys(KINDS, 0)
    known: set[tuple[str, str]] = set()
    for line in (trace[inside:] if places == ("/opt/",) else trace).splitlines():
        found = _CALL.match(line)
        if not found or not found[2].startswith(places):
            continue
        kind = (
            *(["missing"] if "ENOENT" in line else []),
            *(["listed"] if "O_DIRECTORY" in line else []),
            *(["opened"] if found[1] in ("open", "openat", "execve") else []),
            "looked at",
        )[0]
        counts["calls"] += 1
        if kind == "opened" or (kind, found[2]) not in known:
            counts[kind] += 1
        known.add((kind, found[2]))
    return counts


def _files(top: Path) -> list[Path]:
    return [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file() and not path.is_symlink()]


def _throw_out(top: Path) -> None:
    for path in _files(top):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _resident(top: Path) -> int:
    files = [str(path) for path in _files(top)]
    groups = [files[start : start + 1000] for start in range(0, len(files), 1000)]
    said = (
        subprocess.run(["fincore", "-bno", "RES", *group], check=True, capture_output=True).stdout for group in groups
    )
    return sum(int(word) for text in said for word in text.split())


if __name__ == "__main__":
    main()
