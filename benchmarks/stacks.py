"""A stack of many modules over 40 images: planned, applied, applied again, rendered again, and seen by Lmod.

    python benchmarks/stacks.py [--modules 100,1000,3000]
    python benchmarks/stacks.py --checked [--modules 1000]

The images are real SIFs of 1 MB with different content, converted by sifmod, and are copied into the store. Targets for
1 000 modules (docs/benchmarks.md): plan 2 s, first apply 60 s, apply with nothing to do 2 s, all rendered again 8 s.
Lmod's `avail` and `spider` are timed against as many modulefiles written by hand, without a cache and with Lmod's own.
Memory is the peak of all processes together.

`--checked`: the same with the sanity check. Each module has one wrapper, those of an image have different ones. The
runtime that sifmod finds is a script that counts the containers and then is the real one. Targets for 1 000 modules: at
most 40 containers and 45 s for the first apply, none and 15 s for new generations of all.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measured import Measured, measure
from support.images import APPLETS, Images, converted
from timing import side_by_side

IMAGES = 40
TARGETS = {"plan": 2.0, "apply, the first": 60.0, "apply, nothing to do": 2.0, "rendered again": 8.0}
EASYCONFIG = """\
name: Bench{image}
version: '{number}'
description: {description}
image: {{filename: bench.sif, sources: ['{sif}']}}
wrappers: [sh, python]
contents: {{torch: '2.{number}', deepspeed: '0.{number}'}}
"""
BY_HAND = """\
help([[one of many]])
whatis("Description: one of many")
extensions("deepspeed/0.{number}, torch/2.{number}")
setenv("SIF", "{sif}")
prepend_path("PATH", "/nowhere/{number}/bin")
"""
COUNTING = """\
#!/bin/sh
case " $* " in *" exec "* | *" run "*) echo start >>{log} ;; esac
exec {runtime} "$@"
"""
CHECKED = {"apply, the first": (45.0, IMAGES), "new generations of all": (15.0, 0), "apply, nothing to do": (2.0, 0)}
LMOD = "/usr/share/lmod/lmod/libexec"


@dataclass(frozen=True)
class Bench:
    """A directory with a stack of so many modules."""

    root: Path
    modules: int

    @property
    def environment(self) -> dict[str, str]:
        home = {
            "HOME": str(self.root),
            "SIFMOD_PREFIX": str(self.root / "tree"),
            "SIFMOD_CONFIG_DIR": str(self.root / "etc"),
        }
        path = f"{self.root / 'counting'}:{os.environ['PATH']}"
        root = {"APPTAINER_USERNS": "1"} if os.geteuid() == 0 else {}
        return {**os.environ, **root, **home, "PATH": path}

    def write(self, images: Sequence[Path], *, checked: bool = False, description: str = "one of many") -> None:
        (self.root / "easyconfigs").mkdir(exist_ok=True)
        names = APPLETS.split()
        for number in range(self.modules):
            image = number % len(images)
            text = EASYCONFIG.format(image=image, number=number, sif=images[image], description=description)
            if checked:  # the images have no Python
                text = text.replace("[sh, python]", f"['{names[number // len(images) % len(names)]}']")
            (self.root / f"easyconfigs/Bench{image}-{number}.yaml").write_text(text)
            hand = self.root / f"hand/Bench{image}/{number}.lua"
            hand.parent.mkdir(parents=True, exist_ok=True)
            hand.write_text(BY_HAND.format(number=number, sif=images[image]))
        (self.root / "stack.yaml").write_text("name: bench\neasyconfigs: ['easyconfigs/*.yaml']\n")

    def count(self) -> None:
        """Put a script that counts before each runtime."""
        (self.root / "counting").mkdir()
        for name in ("apptainer", "singularity"):
            if runtime := shutil.which(name):
                script = self.root / "counting" / name
                script.write_text(COUNTING.format(log=self.root / "started", runtime=runtime))
                script.chmod(0o755)

    def counted(self) -> int:
        """How many containers were started since it was asked last."""
        log = self.root / "started"
        started = len(log.read_text().splitlines()) if log.exists() else 0
        log.unlink(missing_ok=True)
        return started

    def sifmod(self, *words: str) -> Measured:
        command = [str(Path(sys.executable).with_name("sifmod")), *words]
        return measure(command, self.environment, self.root / "log", lambda: 0)

    def stack(self, verb: str, *options: str, checked: bool = False) -> Measured:
        skip = () if checked else ("--skip-sanity-check",)
        return self.sifmod("stack", verb, str(self.root / "stack.yaml"), *skip, *options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", default="100,1000,3000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--checked", action="store_true", help="with the sanity check, and nothing else")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sifmod-bench-") as folder:
        images = made_images(Path(folder))
        for modules in map(int, arguments.modules.split(",")):
            bench = Bench(Path(folder, str(modules)), modules)
            bench.root.mkdir()
            bench.write(images, checked=arguments.checked)
            if arguments.checked:
                checked_steps(bench, images)
            else:
                steps(bench)
                seen_by_lmod(bench, arguments.runs)
            shutil.rmtree(bench.root)


def made_images(folder: Path) -> tuple[Path, ...]:
    """Forty SIFs of 1 MB, each with other content."""
    images = tuple(folder / f"{number}.sif" for number in range(IMAGES))
    for number, image in enumerate(images):
        converted(image, Images().tiny_layout(f"bench-{number}"))
    return images


def steps(bench: Bench) -> None:
    """What staff do, one after the other."""
    rows = {"plan, none there": bench.stack("plan"), "apply, the first": bench.stack("apply", "-q")}
    rows |= {"plan": bench.stack("plan"), "apply, nothing to do": bench.stack("apply", "-q")}
    again = ("install", "--module-only", "--installed", "-q", "-y", "--skip-sanity-check")
    rows["rendered again, nothing else"] = bench.sifmod(*again)
    (bench.root / "etc").mkdir()
    (bench.root / "etc/own.yaml").write_text("env: {NCCL_DEBUG: WARN}\n")
    rows["rendered again"] = bench.sifmod(*again)
    print(f"{bench.modules} modules of {IMAGES} images")
    for name, measured in rows.items():
        target = f"target {TARGETS[name]:.0f}" if bench.modules == 1000 and name in TARGETS else ""
        print(f"  {name:28} {measured.wall:8.2f} s {measured.memory / 1e6:8.0f} MB  {target}", flush=True)


def checked_steps(bench: Bench, images: Sequence[Path]) -> None:
    """The first apply, another description for all, and nothing to do; with the containers that each starts."""
    bench.count()
    print(f"{bench.modules} modules of {IMAGES} images, one wrapper each; load average {os.getloadavg()[0]:.1f}")
    for name, (seconds, containers) in CHECKED.items():
        if name == "new generations of all":
            bench.write(images, checked=True, description="another text")
        measured, started = bench.stack("apply", "-q", checked=True), bench.counted()
        target = f"targets {seconds:.0f} s, {containers} containers" if bench.modules == 1000 else ""
        row = f"  {name:28} {measured.wall:8.2f} s {measured.cpu:8.2f} CPU s {started:6} containers"
        print(f"{row}  load {os.getloadavg()[0]:.1f}  {target}", flush=True)


def seen_by_lmod(bench: Bench, runs: int) -> None:
    """`avail` and `spider` of the tree against modulefiles by hand, without a cache and with one."""
    trees = {"by hand": bench.root / "hand", "sifmod's": bench.root / "tree/modules"}
    for words in (("avail",), ("spider", "deepspeed")):
        for cached in (False, True):
            commands = {name: lmod(tree, cached, words) for name, tree in trees.items()}
            timed = side_by_side(commands, runs, bench.environment)
            hand, ours = (timed[name].median for name in trees)
            how = "with a cache" if cached else "without a cache"
            print(
                f"  {' '.join(words)}, {how}: {hand:.2f} s by hand, {ours:.2f} s sifmod's, {ours / hand:.2f}",
                flush=True,
            )


def lmod(tree: Path, cached: bool, words: Sequence[str]) -> list[str]:
    """One command of Lmod over one tree."""
    cache, settings = (
        tree.with_name(f"{tree.name}-cache"),
        [f"MODULEPATH={tree}", "LMOD_REDIRECT=no", "LMOD_SHORT_TIME=86400"],
    )
    if cached:
        if not cache.is_dir():
            cache.mkdir()
            update = [f"{LMOD}/update_lmod_system_cache_files", "-d", str(cache), "-t", f"{cache}/timestamp", str(tree)]
            subprocess.run(update, check=True, capture_output=True)
        (cache / "rc.lua").write_text(
            f'scDescriptT = {{{{["dir"] = "{cache}", ["timestamp"] = "{cache}/timestamp"}}}}\n'
        )
        settings.append(f"LMOD_RC={cache}/rc.lua")
    else:
        settings.append("LMOD_IGNORE_CACHE=yes")
    return ["env", *settings, f"{LMOD}/lmod", "bash", *words]


if __name__ == "__main__":
    main()
