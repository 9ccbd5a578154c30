"""Import a collection of other tools' files, and compare modules of ours with the originals, both loaded by Lmod.

    python tests/fuzz/imported.py DIRECTORY [--sample 300] [--seed 1]

DIRECTORY is a clone of PurdueRCAC/Biocontainers (its `modulefiles`), of NGC's environment modules, of a registry of
singularity-hpc, or of LUMI-EasyBuild-containers. Each module tree in it, the directory two above its Lua modulefiles,
is imported by itself, and everything together. Prints how many files were imported, were the same as others, or were
refused with which reason; how many modulefiles kept their name; and how many of the conflicts between modules of one
tree, as plain Lua runs the originals, are conflicts between the imported ones. Then the sample: the original and the
imported module are loaded, each of their commands is run with a runtime that only writes down what it is told, and
compared are the commands, the images, the bind paths and the variables inside: once with no variable of the user's, and
once with each variable set that the original sets, and with the directory of images that it looks in. What a note of
the easyconfig names counts as told.

Ends with 1 where a difference was not told. Needs Lmod.
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from plans import publish
from sifmod.actions.author.import_easyconfig import Converted, convert, find_sources
from sifmod.imports.modulefile import Naming
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.plan import PIP_TARGET, Plan, Runtime
from support.config import Configuration
from support.module_tool import ModuleTool, Step, lmod

# a runtime that writes down its words and, once, its environment
RUNTIME = """#!/bin/sh
{ printf '%s' "$COMMAND"; printf '\\001%s' "$@"; printf '\\n'; } >>"$OUT"
[ -e "$OUT.env" ] || env -0 >"$OUT.env"
"""
CONFLICTS = """
local known = { help = 1, whatis = 1 }
for _, file in ipairs(arg) do
   local own, version = file:match("([^/]+)/([^/]+)%.lua$")
   local env = setmetatable({
      conflict = function(...) for _, name in ipairs({...}) do print(file .. "\\t" .. name) end end,
      myModuleName = function() return own end, myModuleVersion = function() return version end,
      myModuleFullName = function() return own .. "/" .. version end, mode = function() return "load" end,
      capture = function() return "" end, pathJoin = function(...) return table.concat({...}, "/") end,
      isFile = function() return false end, isDir = function() return false end, isloaded = function() return false end,
      os = { getenv = function() return nil end }, io = { stderr = { write = function() end } },
      string = string, table = table, pairs = pairs, ipairs = ipairs, tostring = tostring, unpack = table.unpack,
   }, { __index = function() return function() end end })
   local text = loadfile(file, "t", env)
   if text then pcall(text) end
end
"""
_NO_RUNTIME = {"BIOC_SINGULARITY_MODULE": "none", "NGC_SINGULARITY_MODULE": "none"}
# what the module tool and sifmod keep, what every shell has, and what only tells the runtime how to start
_KEPT = (
    *(
        "LMOD",
        "__LMOD",
        "_ModuleTable",
        "_LMFILES_",
        "LOADEDMODULES",
        "MODULE",
        "MANPATH",
        "_SIFMOD",
        "SIF",
        "RUNSCRIPTS",
    ),
    *("CONTAINERROOT", "EBROOT", "EBVERSION", "WITH_CONDA", "BASH", "PWD", "OLDPWD", "SHLVL", "_", "OUT", "COMMAND"),
    *("SINGULARITY_", "APPTAINER_", "PATH", "PREPEND_PATH", "APPEND_PATH", "PYTHONNOUSERSITE", "PIP_USER"),
    *("HOME", "USER", "LANG", "TERM", "BIOC_IMAGE_DIR", "NGC_IMAGE_DIR", *_NO_RUNTIME),
)
# what every module of ours sets inside: the answer to `pip install`, and nothing of the host's
_OURS = {("PYTHONPATH", ""), ("PYTHONPATH", PIP_TARGET), ("LD_PRELOAD", "")}
_BINDS = tuple(f"{runtime}_BIND{path}" for runtime in ("SINGULARITY", "APPTAINER") for path in ("", "PATH"))


@dataclass(frozen=True)
class Did:
    """What one module gives: each command's verb, image and words; binds; variables and PATH inside."""

    commands: Mapping[str, tuple[str, ...]]
    binds: frozenset[str]
    inside: Mapping[str, str]
    path: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    """Count and compare; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sifmod-imported-") as work:
        configuration = Configuration(Path(work) / "config")
        trees = module_trees(given.directory)
        done: dict[Path, list[Converted]] = {}
        for tree in trees or [given.directory]:
            done[tree] = imported(tree, configuration)
            told(str(tree), done[tree])
            if trees:
                conflicts(done[tree], configuration, Path(work))
        if len(trees) > 1:
            told("everything together", imported(given.directory, configuration))
        if not trees:
            return 0
        modules = [one for found in done.values() for one in found if one.text and not one.same_as]
        chosen = random.Random(given.seed).sample(modules, min(given.sample, len(modules)))
        return Comparison(Path(work), configuration).of(chosen)


def module_trees(directory: Path) -> list[Path]:
    return sorted({path.parent.parent for path in directory.rglob("*.lua")})


def imported(directory: Path, configuration: Configuration) -> list[Converted]:
    return list(convert(find_sources((directory,)), configuration.site(site="generic"), Naming()))


def told(what: str, found: list[Converted]) -> None:
    """Counts of a tree."""
    refused = Counter(
        re.sub(r"^\S+ gives a different module \S+:", "another:", one.problem) for one in found if one.problem
    )
    made = [one for one in found if not one.problem]
    named = [one for one in made if one.source.suffix == ".lua"]
    kept = [one for one in named if one.module == f"{one.source.parent.name}/{one.source.stem}"]
    same = sum(one.same_as is not None for one in made)
    print(f"{what}: {len(found)} files, {len(made)} imported ({same} the same as others), {refused.total()} refused")
    if named:
        print(f"   {len(kept)} of {len(named)} modulefiles keep their name")
    for reason, count in refused.most_common(12):
        print(f"   refused {count}: {reason[:150]}")


def conflicts(found: list[Converted], configuration: Configuration, work: Path) -> None:
    """How many of the originals' conflicts with modules of the tree are conflicts of the imported ones."""
    script = work / "conflicts.lua"
    script.write_text(CONFLICTS)
    files = {str(one.source): one for one in found if one.text}
    pairs: dict[str, set[str]] = {}
    for start in range(0, len(files), 500):
        words = ["lua", str(script), *list(files)[start : start + 500]]
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        for source, _, name in (line.partition("\t") for line in lines):
            pairs.setdefault(source, set()).add(name.strip())
    names = {one.module for one in files.values()} | {one.module.partition("/")[0] for one in files.values()}
    wanted = kept = 0
    for source, others in pairs.items():
        own = files[source].module
        ours = loaded(files[source], configuration, work).conflict
        for other in others & names - {own, own.partition("/")[0]}:
            wanted += 1
            kept += other in ours
    print(f"   {kept} of {wanted} conflicts with modules of the tree match")


def loaded(one: Converted, configuration: Configuration, work: Path) -> Plan:
    """The plan of what was imported."""
    path = work / "imported.yaml"
    path.write_text(one.text)
    site = configuration.site(site="generic", prefix=str(work / "prefix"), module_syntax="lua").site
    return make_plan(configuration.load(path).easyconfig, site, Choices("imported", "copy"))


class Comparison:
    """The sample, module by module."""

    def __init__(self, work: Path, configuration: Configuration) -> None:
        self.work, self.configuration = work, configuration
        self.tool: ModuleTool = lmod(work)
        self.images = work / "images"
        self.images.mkdir()
        self.runtime = work / "bin" / "singularity"
        self.runtime.parent.mkdir()
        self.runtime.write_text(RUNTIME)
        self.runtime.chmod(0o755)
        self.seen: Counter[str] = Counter()

    def of(self, chosen: list[Converted]) -> int:
        for number, one in enumerate(chosen):
            if number and not number % 50:
                print(f"   {number} compared: {dict(sorted(self.seen.items()))}", flush=True)
            differences = list(self.differences(one))
            for what, detail, is_told in differences:
                self.seen[f"{what}: {'told' if is_told else 'DIFFERENT'}"] += 1
                if not is_told:
                    print(f"{one.source}: {what}: {detail}")
            self.seen["modules with nothing untold"] += all(is_told for *_, is_told in differences)
            self.seen["modules that agree in everything"] += not differences
        print(f"compared {len(chosen)} modules, each twice: {dict(sorted(self.seen.items()))}")
        return int(any("DIFFERENT" in what for what in self.seen))

    def differences(self, one: Converted) -> Iterator[tuple[str, str, bool]]:
        """What differs, how, and whether a note says so."""
        plan = replace(
            loaded(one, self.configuration, self.work), runtime=Runtime("singularity", str(self.runtime)), gpu_flags=()
        )
        publish(plan)
        notes = "\n".join(one.notes)
        bare = [source for source in plan.required_image.sources if "/" not in source]
        for name in bare:
            (self.images / name).touch()
        directories = {name: str(self.images) for name in ("BIOC_IMAGE_DIR", "NGC_IMAGE_DIR") if bare}
        without = {} if len(plan.required_image.sources) > len(bare) else directories  # nothing else says where it is
        plain = self.original(one, without)
        mine = {name: f"/users/{name}" for name in plain.inside}
        for env, site in (({}, without), ({**mine, "SINGULARITY_BIND": "/users/own"}, directories)):
            theirs, ours = self.original(one, {**env, **site}), self.ours(plan, env)
            yield from _compare(theirs, ours, plan, notes)

    def original(self, one: Converted, env: Mapping[str, str]) -> Did:
        """The original, loaded and each of its functions run."""
        steps = (
            'before=" $(compgen -A function | tr "\\n" " ")"',
            f"module load {one.source.parent.name}/{one.source.stem}",
            'for COMMAND in $(compgen -A function); do export COMMAND; case $before in *" $COMMAND "*) ;;'
            " *) $COMMAND 'a b' --c;; esac; done",
        )
        return self.did(steps, one.source.parent.parent, {**_NO_RUNTIME, **env})[0]

    def ours(self, plan: Plan, env: Mapping[str, str]) -> Did:
        """Ours, loaded, each of its wrappers run, and unloaded."""
        steps = (
            f"module load {plan.module}",
            'for COMMAND in "$CONTAINERROOT"/bin/*; do export COMMAND="${COMMAND##*/}"; $COMMAND \'a b\' --c; done',
            "unset COMMAND; module unload " + str(plan.module),
        )
        done, first, last = self.did(steps, Path(plan.prefix) / "modules", env)
        assert _users(first) == _users(last), plan.module
        return done

    def did(self, steps: Sequence[str], modules: Path, env: Mapping[str, str]) -> tuple[Did, Step, Step]:
        out = self.work / "out"
        for path in (out, Path(f"{out}.env")):
            path.unlink(missing_ok=True)
        own = {"OUT": str(out), "PATH": f"{self.runtime.parent}:{self.tool.clean_environment()['PATH']}"}
        done = self.tool.session(("true", *steps), modules, {**env, **own})
        lines = out.read_text().splitlines() if out.exists() else []
        commands = {name: tuple(words.split("\1")) for name, _, words in (line.partition("\1") for line in lines)}
        told = Path(f"{out}.env").read_text().split("\0") if commands else []
        environment = dict(pair.partition("=")[::2] for pair in told if pair) or dict(done[2].environment)
        return _did(commands, environment), done[0], done[-1]


def _users(step: Step) -> dict[str, str]:
    kept = (
        "LMOD",
        "__LMOD",
        "_ModuleTable",
        "_LMFILES_",
        "LOADEDMODULES",
        "MODULE",
        "MANPATH",
        "COMMAND",
        "PWD",
        "OLDPWD",
    )
    return {name: value for name, value in step.environment.items() if not name.startswith(kept)}


def _did(commands: Mapping[str, tuple[str, ...]], environment: Mapping[str, str]) -> Did:
    binds = {bind for name in _BINDS for bind in environment.get(name, "").split(",") if bind}
    path: dict[str, None] = {}
    inside = {name: value for name, value in environment.items() if not name.endswith("()")}
    for prefix in ("SINGULARITYENV_", "APPTAINERENV_"):
        told = {name.removeprefix(prefix): value for name, value in environment.items() if name.startswith(prefix)}
        path |= dict.fromkeys(part for part in told.get("PREPEND_PATH", "").split(":") if part)
        path |= dict.fromkeys(part for part in told.get("PATH", "").split(":") if part)
        inside = {name: value for name, value in inside.items() if not name.startswith(prefix)} | told
    inside = {
        name: value
        for name, value in inside.items()
        if not name.startswith(_KEPT) and (name, value) not in _OURS and name not in _BINDS
    }
    taken: dict[str, tuple[str, ...]] = {}
    for name, words in commands.items():
        rest = [word for word in words if word not in ("-q", "--nv", "--rocm")]
        while len(rest) > 1 and rest[1].startswith("-"):
            if rest[1] in ("-B", "--bind"):
                binds |= set(rest[2].split(","))
                del rest[1:3]
            else:
                del rest[1 : 3 if rest[1] == "--env" else 2]
        taken[name] = tuple(rest)
    return Did(taken, frozenset(binds), inside, tuple(part.rstrip("/") or part for part in path))


def _compare(theirs: Did, ours: Did, plan: Plan, notes: str) -> Iterator[tuple[str, str, bool]]:
    own = {wrapper.name for wrapper in plan.wrappers if wrapper.name != "start-shell"}
    for name in theirs.commands.keys() | own:
        their, our = theirs.commands.get(name, ()), ours.commands.get(name, ())
        if their[:1] != our[:1] or _words(their) != _words(our):
            yield (
                "command",
                f"{name}: {their} {our}",
                any(said in notes for said in (f"function {name}", f"{name} hands", repr(name))),
            )
        elif not {their[1], their[1].rpartition("/images/")[2]} & set(plan.required_image.sources):
            yield "image", f"{their[1]} {plan.required_image.sources}", False
    wanted = {str(bind) for bind in plan.binds}
    mine = {"/users/own"} & theirs.binds
    for bind in theirs.binds ^ (wanted | mine):
        yield "bind", bind, f":{bind.partition(':')[2]}'" in notes  # its source may be spelled with $HOME
    if not mine <= ours.binds:
        yield "bind", f"the user's own: {ours.binds}", False
    for directory in set(theirs.path) ^ {part.rstrip("/") for part in plan.path if part != "/runscripts"}:
        yield "PATH", directory, directory in notes
    for name in theirs.inside.keys() | ours.inside.keys():
        if theirs.inside.get(name) != ours.inside.get(name):
            yield "variable", f"{name}: {theirs.inside.get(name)} {ours.inside.get(name)}", name in notes


def _words(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command inside; what a shell inside would make of it where one is started for the place of the arguments."""
    words = command[2:]
    if words[:2] == ("env", "-u"):  # ours, for an `env` in front of the original's runtime
        words = words[1:]
        while words[:1] == ("-u",):
            words = words[2:]
    if words[:2] == ("sh", "-c") and '"$@"' in words[2]:
        done = subprocess.run(("sh", "-c", f"printf '%s\\1' {words[2]}", *words[3:]), capture_output=True, check=True)
        return tuple(done.stdout.decode().split("\1")[:-1])
    return words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
