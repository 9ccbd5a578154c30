"""Definitions with random environments: what sifmod says of them beside what the runtime has in its containers.

    python -m tests.fuzz.environments [--definitions 200] [--seed 1]

Each is built by the runtime, and its script is read without it (`show`) and with it (`export`). A variable that either
has and the container has not, or with another value, is a finding, and so is one that is not there and not named.
Prints the counts, and ends with 1 where there is a finding.
"""

import argparse
import json
import os
import random
import re
import sys
import tarfile
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent))

from sifmod.image.export import write_archive, write_directory
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.printable import block
from support.command import run
from support.images import Images
from support.runtime import RUNTIME

NAMES = ("A", "B", "LIB", "CUDA", "CUDA_HOME", "PATH", "LD_LIBRARY_PATH", "MANPATH", "LANG")
_RUNTIMES = re.compile(
    r"HOME|PWD|OLDPWD|SHLVL|_|USER_PATH|PROMPT_COMMAND|__script__|e|key|PS1|TERM|(APPTAINER|SINGULARITY)_.*"
)
_LIBRARIES = "/.singularity.d/libs"


def value(source: random.Random) -> str:
    """One side of an assignment, as people write them."""
    name = source.choice(NAMES)
    return source.choice(
        (
            "1", "/opt/x", '"/opt/a b"', "'it has $A'", "", "''", '"a\\"b\\\\c\\$d\\n"', "a\\ b", "'x'\"y\"z", "ü€",
            "a=b", "x#y", "a:b", '"line\nbreak"', "'two\n\nlines'", "con\\\ntinued", '"con\\\ntinued"', "{a,b}", "*",
            f"${name}", f"${name}_HOME", f"${{{name}}}", f'"${{{name}}}/lib"', f"/opt/bin:${name}", f'"${name}:/x"',
            f"'${name}'", f"\\${name}", f"${{{name}:-none}}", f"${{{name}-none}}", f'"${{{name}:-"a b"}}"',
            f"${{{name}:+:${name}}}", f"/x${{{name}:+:${{{name}}}}}", f"${{{name}+set}}", f"${{{name}:-$CUDA}}",
            f"${{{name}:-~/x}}", f"${{{name}%/*}}", f"${{#{name}}}", f"${{{name}:=new}}", f"${{{name}//a/b}}",
            "$HOME/x", '"${HOME}"', "~/x", "~", "a~b", "/x:~/y", "$(echo hello)", "`echo hello`", "$((1 + 2))",
            '"$(cat /etc/variant)"', "$(echo ')')", "$(printf '\\r')", "$PWD", "$UID", "$(id -u)", "$(hostname)",
            "$1", "$$x", "$?", "a$", '"a$"', "$'a\\tb'", '$"a"', "a'b", "\"a'b\"", "$RANDOM", '"!x"',
        )
    )  # fmt: skip


def statement(source: random.Random, depth: int = 0) -> str:
    """One line or several."""
    name, other = source.choice(NAMES), source.choice(NAMES)
    first, second = value(source), value(source)
    inner = statement(source, depth + 1) if depth < 2 else f"export {name}={first}"
    return source.choice(
        (
            *(f"export {name}={first}",) * 12,
            *(f"{name}={first}",) * 2,
            f"export {name}",
            f"export {name}={first} {other}={second}",
            f"export {name}={first} {other}",
            f"export \\\n  {name}={first} \\\n  {other}={second}",
            f"{name}={first}; export {name}",
            f"{name}={first} {other}={second}",
            f"{name}={first} && export {name}",
            f"export {name}={first} # a note, it's one",
            f"  # export {name}={first}",
            f"readonly {name}={first}",
            f"export {name}+=x",
            f"unset {name}",
            f"export \"{name}={first.strip(chr(34))}\"",
            f"declare -x {name}={first}",
            f"{name}={first} true",
            f"[ -n \"${name}\" ] && export {other}={first}",
            f"[ -n \"${name}\" ] || export {other}={first}",
            f"if [ -z \"${{{name}:-}}\" ]; then\n{inner}\nelse\n{inner}\nfi",
            f"for each in a b; do\n  {inner}\ndone",
            f"case ${name} in\n  *x*) {inner} ;;\n  (y|z) {inner} ;;\nesac",
            f"f() {{\n  {inner}\n}}",
            f"f() {{\n  {inner}\n}}\nf",
            f"{{ {inner}\n}}",
            f"( {inner}\n)",
            f"cat > /dev/null <<EOF\nexport {name}={first}\n{inner}\nEOF",
            f"cat > /dev/null <<-'END'\n\texport {name}={first}\n\tEND",
            f"read {name} <<EOF\nread\nEOF",
            f"echo export {name}={first} >/dev/null",
            f"export {name}={first} >/dev/null",
            f"export {name}={first} | cat",
            f"eval 'export {name}=evaluated'",
            f"eval \"{name}=evaluated\" || true",
            ". /etc/more.sh",
            "[ -f /etc/more.sh ] && . /etc/more.sh",
            "set -a",
            f"export {name}={first} || true",
            f"true && export {name}={first}",
            "test -d /nowhere && return",
            "test -d /etc && return",
            "return 0",
        )
    )  # fmt: skip


def script(source: random.Random) -> str:
    """An environment of a definition."""
    return "\n".join(statement(source) for _ in range(source.randint(1, 6))) + "\n"


def unpacked(place: Path) -> Path:
    """What the definitions go on from."""
    write_directory(Images().tiny_sif, place, lambda *_: None)
    (place / "etc" / "more.sh").write_text("export MORE=1 A=more\n")
    return place


def built(place: Path, base: Path, environment: str) -> Path:
    """A SIF of a definition with this environment, over the files in the directory `base`."""
    definition, to = place / "definition", place / "built.sif"
    definition.write_text(f"Bootstrap: localimage\nFrom: {base}\n%environment\n{environment}")
    own = {f"{RUNTIME.prefix}_{name}": str(place) for name in ("CACHEDIR", "TMPDIR")}
    env = {"PATH": os.environ["PATH"], "HOME": str(place), **RUNTIME.userns, **own}
    run((RUNTIME.path, "--silent", "build", "-F", *RUNTIME.fast, to, definition), env=env).ok()
    return to


def in_a_container(sif: Path) -> dict[str, str] | None:
    """What a program has there; None where the image cannot be started."""
    env = {"PATH": os.environ["PATH"], "HOME": "/root", **RUNTIME.userns}
    command = (RUNTIME.path, "--silent", "exec", "--contain", "--no-home", sif, "/bin/cat", "/proc/self/environ")
    ended = run(command, env=env)
    if ended.code != 0:
        return None
    found = dict(text.partition("=")[::2] for text in ended.stdout.split("\0") if text)
    return {name: text for name, text in found.items() if not _RUNTIMES.fullmatch(name)}


def findings(sif: Path, counts: Counter[str]) -> list[str]:
    """Where sifmod says otherwise than the container has it."""
    there = in_a_container(sif)
    if there is None:
        counts["cannot be started"] += 1
        return []
    libraries = there.pop("LD_LIBRARY_PATH")
    if libraries != _LIBRARIES:  # read-only it can have no value
        there["LD_LIBRARY_PATH"] = libraries.removesuffix(f":{_LIBRARIES}")
    found = []
    described = describe_sif(sif)
    shown, notes = dict(described.config.environment), described.notes
    printable = {name: block(text) for name, text in there.items()}
    if not notes:
        counts["understood without a container"] += 1
    found += [f"show: {one}" for one in _differences(shown, printable, notes, alone=True)]
    archive = sif.with_suffix(".tar")
    archive.unlink(missing_ok=True)
    told = write_archive(sif, archive, "oci-archive", RUNTIME.plan, lambda *_: None)
    pushed = dict(text.partition("=")[::2] for text in _config(archive)["Env"])
    started = not any(" did not start " in note for note in told)
    counts["not started for an export"] += not started  # a shell of Apptainer's ends now and then, of a closed pipe
    found += [f"export: {one}" for one in _differences(pushed, there, told, alone=not started)]
    counts["variables"] += len(there)
    counts["variables shown"] += len(shown.keys() & there.keys())
    return found


def _differences(said: dict[str, str], there: dict[str, str], notes: tuple[str, ...], *, alone: bool) -> list[str]:
    named = set(re.findall(r"\w+", " ".join(note for note in notes if "left out" in note or "here: " in note)))
    whole = any("effect on the environment is unknown" in note for note in notes)
    wrong = []
    for name in sorted(said.keys() | there.keys()):
        if name in said and name in there and said[name] == there[name]:
            continue
        if name == "LD_LIBRARY_PATH" and not (said.get(name) or there.get(name)):
            continue  # an empty one, of `readonly`, is as if it were unset
        if name in named and (name not in said or not alone):
            continue
        if name not in said and (whole and alone):
            continue
        if name == "PATH" and name not in said and alone:
            continue  # an image without one has the default
        if name in said and whole and alone:
            continue
        wrong.append(f"{name} is {said.get(name)!r}, and in a container {there.get(name)!r}; {notes}")
    return wrong


def _config(archive: Path) -> dict[str, list[str]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.startswith("blobs/sha256/") and member.isfile() and member.size < 1 << 20:
                stream = tar.extractfile(member)
                text = stream.read() if stream else b""
                if text.startswith(b'{"created"'):
                    section: dict[str, list[str]] = json.loads(text)["config"]
                    return section
    raise AssertionError(archive)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--definitions", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    counts, bad = Counter[str](), 0
    with TemporaryDirectory() as place:
        base = unpacked(Path(place, "base"))
        for number in range(given.definitions):
            environment = script(random.Random(f"{given.seed}-{number}"))
            found = findings(built(Path(place), base, environment), counts)
            if found:
                bad += 1
                print(f"== {number}\n{environment}", *found, sep="\n", flush=True)
    print(f"{given.definitions} definitions, {dict(counts)}, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
