"""Every command of sifmod, once: what it starts from, where it writes, and how it is typed.

The tests that ask the same of all commands go through COMMANDS, so a new command is in all of them as soon as it is
listed; `tests/system/test_all_commands.py` fails until it is.
"""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from grp import getgrnam
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from sifmod.cli.main import cli
from support.command import run
from support.config import write
from support.images import Images
from support.memory import temporary
from support.registry import Registry
from support.runtime import RUNTIME
from support.starts import Starts
from support.trial import Place, make_place
from support.victim import Outcome, Victim
from support.wheels import wheel

SKIP = "--skip-sanity-check"
LAYER = "Python/3.11"


@dataclass(frozen=True)
class Command:
    """`words` have names of `World.names` in braces; a word has no blank, the path that is put into it has."""

    start: str  # the tree that it is typed in, one of STARTS
    writes: str  # prefix; output: a file that the user names; home: the user's own; registry; nothing; cache: what it
    # found, or a line of the log, by who may write in the prefix
    words: str

    def __str__(self) -> str:
        return self.words

    @property
    def verb(self) -> str:
        """`install`, or `stack apply`."""
        first, second, *_ = (*self.words.split(), "")
        return f"{first} {second}" if first in ("stack", "site", "config", "layer", "self") else first

    @property
    def needs_no_tree(self) -> bool:
        """What it reads and writes is not in a prefix."""
        return self.verb in NO_TREE or "--search" in self.options or "--output {out}/x.sif" in self.words

    @property
    def own_layer(self) -> bool:
        """Whether it makes or takes away a layer of packages."""
        return self.verb in ("add", "layer add", "layer remove", "layer sync")

    @property
    def options(self) -> set[str]:
        return {word for word in self.words.split() if word.startswith("--")}


NO_TREE = (
    "import",
    "new",
    "schema",
    "site new",
    "site detect",
    "site show",
    "check",
    "config show",
    "init",
    "doctor",
    "search",
    "help",
    "self module",
)


def _commands() -> tuple[Command, ...]:
    lines = (line.split(None, 2) for line in _TABLE.strip().splitlines() if not line.startswith("#"))
    return tuple(Command(start, writes, words) for start, writes, words in lines)


# start, where it writes, words
_TABLE = f"""
none    prefix   install {{a}} {SKIP}
modules prefix   install {{c}} {SKIP}
modules prefix   install {{a}} {SKIP} --rebuild
modules prefix   install {{a}} {SKIP} --force
modules prefix   install {{c}} {SKIP} --link copy
modules prefix   install {{b}} {SKIP} --module-only --rebuild
modules prefix   install --installed --module-only --yes {SKIP} --module-syntax both
modules prefix   install {{c}} --fetch
modules nothing  install {{c}} --dry-run
modules nothing  install {{c}} --dry-run-short
modules nothing  install {{c}} --extended-dry-run
modules prefix   fetch {{sif}}
modules output   fetch {{sif}} --output {{out}}/x.sif
modules output   export Tiny/1.0 --to sif --output {{out}}/e.sif
modules output   export Tiny/1.0 --to sqsh --output {{out}}/e.sqsh
modules output   export Tiny/1.0 --to oci-archive --output {{out}}/e.tar
modules output   export Tiny/1.0 --to docker-archive --output {{out}}/d.tar
modules output   export Tiny/1.0 --to sandbox --output {{out}}/sandbox
modules output   new {{sif}} --name New --version 3 --output {{out}}/New-3.yaml
modules output   import {{shpc}} --output {{out}}
modules output   lock {{b}} --output {{out}}/Tiny.lock
modules output   jobscript Tiny/1.0 --output {{out}}/job.sh
modules cache    sbom Tiny/1.0 --output {{out}}/sbom.json
modules nothing  schema --output list
modules output   site new hilltop --output {{out}}/hilltop.yaml
modules home     site new hilltop
modules output   stack init {{out}}/stack.yaml
modules prefix   stack lock {{stack}} --output {{out}}/stack.lock
modules output   stack catalogue --all --output {{out}}/catalogue
none    prefix   stack apply {{stack}} {SKIP}
modules prefix   stack apply {{stack}} {SKIP} --rebuild
stack   prefix   stack apply {{other_stack}} {SKIP}
stack   prefix   stack lock {{stack}}
locked  prefix   stack lock {{stack}} --forget
locked  output   stack bundle {{stack}} --no-wheels --output {{out}}/stack.tar
bundle  prefix   stack apply --bundle {{bundle}} {SKIP}
staged  prefix   stack apply {{stack}} --locked --from {{staging}} {SKIP}
modules prefix   rollback Tiny/1.0
modules prefix   rollback Tiny/1.0 --to 1
held    prefix   rollback Tiny/1.0 --release
modules prefix   uninstall Tiny/1.0
modules prefix   uninstall Tiny/1.0 --purge --ignore-jobs
modules prefix   gc --yes --now --rollbacks --ignore-jobs
modules nothing  gc --now --ignore-jobs
modules prefix   verify --repair-modes
modules nothing  verify --modes
modules nothing  verify
modules prefix   default Tiny/1.0
decided prefix   default Pair --none
modules prefix   hide Tiny/1.0
decided prefix   hide Pair/2-x --undo
modules prefix   deprecate Tiny/1.0 --since 2020-01-01 --message old
decided prefix   deprecate Pair/1-x --undo
modules prefix   retire Tiny/1.0 --since 2020-01-01 --message gone
decided prefix   retire Tiny/1.0 --undo
layer   prefix   add {LAYER} helper --no-index --find-links {{wheels}}
layer   output   add {LAYER} helper --no-index --find-links {{wheels}} --dir {{out}} --no-import
layer   prefix   layer add {LAYER} helper --no-index --find-links {{wheels}} --layer second --unpacked --no-import
layered prefix   add {LAYER} --upgrade --no-index --find-links {{wheels}} --no-import
layered prefix   layer remove {LAYER} demo --no-index --find-links {{wheels}}
layered prefix   layer remove {LAYER} --all
stale   prefix   layer remove {LAYER} --stale
layer   prefix   layer sync {LAYER} {{pylock}} --no-index --find-links {{wheels}}
layered nothing  layer list {LAYER}
layered home     jupyter {LAYER}
kernel  home     jupyter {LAYER} --remove
modules registry push Tiny/1.0 docker://{{registry}}/tiny:1
modules nothing  install --search pytorch
modules nothing  install {{a}} --missing-modules
modules cache    install {{c}} --sanity-check-only
modules nothing  outdated
modules nothing  upgrade --all --dry-run-short
modules nothing  help install
modules nothing  list
modules nothing  show Tiny/1.0
modules nothing  search Pair --robot-paths {{stacks}}
modules cache    diff Tiny/1.0@1 Tiny/1.0@2
modules nothing  log Tiny/1.0
modules cache    test Tiny/1.0
modules nothing  check {{a}}
modules nothing  config show
modules nothing  site detect
modules nothing  site show generic
modules nothing  doctor
modules nothing  init bash
modules output   self module {{out}}/modulefiles
modules nothing  stack plan {{stack}} {SKIP}
modules nothing  stack outdated {{stack}}
"""
COMMANDS = _commands()

SHARED_BY = "staff"
MEMBERS = ("publisher", "member")  # of that group
USERS = (*MEMBERS, "reader", "stranger")
STARTS: dict[str, tuple[str, tuple[str, ...]]] = {  # the start before it, and what its publisher types after that
    "none": ("", ("fetch {sif}",)),  # a tree that its publisher has made
    "modules": ("none", (f"install {{a}} {SKIP}", f"install {{b}} {SKIP}", f"stack apply {{stack}} {SKIP}")),
    "stack": ("modules", ()),
    "held": ("modules", ("rollback Tiny/1.0",)),
    "locked": ("modules", ("stack lock {stack}",)),
    "staged": (
        "none",
        (f"stack apply {{stack}} --prefix {{staging}} {SKIP}", "stack lock {stack} --prefix {staging}"),
    ),
    "bundle": (  # whose images are nowhere else any more
        "locked",
        (
            "stack bundle {stack} --no-wheels --output {bundle}",
            "stack lock {stack} --forget",
            "uninstall Tiny/1.0 Pair/1-x Pair/1-y Pair/2-x Pair/2-y --purge --ignore-jobs",
        ),
    ),
    "decided": (
        "modules",
        (
            "default Pair/1-y",
            "hide Pair/2-x",
            "deprecate Pair/1-x --since 2020-01-01 --message old",
            "retire Tiny/1.0 --since 2020-01-01 --message gone",
        ),
    ),
    "layer": ("none", (f"install {{python}} {SKIP}", f"install {{a}} {SKIP}")),
    "layered": ("layer", (f"add {LAYER} demo ipykernel --no-index --find-links {{old_wheels}}",)),
    "stale": ("layered", (f"install {{other_python}} {SKIP}",)),
    "kernel": ("layered", (f"jupyter {LAYER}",)),  # of each user who can read the tree
}
PAIR = """
name: Pair
version: '{version}'
description: 'for {version}'
accelerator: none
image: {{sources: ['{source}'], filename: pair.sif}}
variants: {{x: {{versionsuffix: -x}}, y: {{versionsuffix: -y}}}}
"""
PYTHON = """
name: Python
version: '3.11'
description: Python
preset: pytorch
path+: [/opt/miniconda3/envs/pytorch/bin]
wrappers: [python, pip]
runscripts: []
sanity_check: {{}}
image: {{sources: ['{source}']}}
"""


@dataclass(frozen=True)
class World:
    """A machine with four users: two of the group that shares a prefix, one who reads it and one of another group.

    All that commands change is below `area`, which `reset` replaces by what a start is; a blank is in every path.
    """

    place: Place
    victim: Victim
    users: Mapping[str, tuple[int, ...]]  # uid, gid, further groups
    registry: str
    starts: Starts

    @property
    def area(self) -> Path:
        return self.starts.top

    @property
    def prefix(self) -> Path:
        return self.area / "the tree"

    def home(self, who: str) -> Path:
        return self.area / f"home of {who}"

    def names(self, who: str) -> dict[str, Path | str]:
        top = self.place.directory
        builds = {tag: top / tag / "Tiny-1.0.yaml" for tag in "abc"}
        return {
            **builds,
            "sif": top / "c.sif",
            "python": top / "one image" / "Python-3.11.yaml",
            "other_python": top / "another image" / "Python-3.11.yaml",
            "wheels": top / "wheels",
            "old_wheels": top / "old wheels",
            "pylock": top / "pylock.toml",
            "shpc": Path(__file__).parents[1] / "import" / "shpc" / "samtools" / "container.yaml",
            "stacks": self.area / "stacks",
            "stack": self.area / "stacks" / "stack.yaml",
            "other_stack": self.area / "stacks" / "other.yaml",
            "staging": self.area / "staging tree",
            "bundle": self.area / "stacks" / "stack.tar",
            "out": self.home(who) / "out put",
            "registry": self.registry,
        }

    def run(
        self, who: str, umask: int, words: str, how: str = "whole", step: int = 0, env: Mapping[str, str] | None = None
    ) -> Outcome:
        """One command of a user, typed in the user's home."""
        uid, gid, *groups = self.users[who]
        names = self.names(who)
        typed = [word.format(**names) for word in words.split()]
        own = {"HOME": str(self.home(who)), "USER": f"sifmod-{who}", **(env or {})}
        return self.victim.run(typed, how, step, who=(uid, gid, umask, *groups), env=own)

    def ok(self, who: str, umask: int, words: str) -> Outcome:
        outcome = self.run(who, umask, words)
        assert outcome.code == 0, f"{words} by {who} with {umask:03o}: {outcome.code} {outcome.stdout}{outcome.stderr}"
        return outcome

    def settings(self, sharing: str) -> None:
        """For whom the prefix is; `none`: nothing is said."""
        says = "" if sharing == "none" else f"sharing: {sharing}\ngroup: {SHARED_BY}\n"
        write(Path(self.place.env["SIFMOD_CONFIG_DIR"], "a.yaml"), f"{says}prefix: '{self.prefix}'\n")

    def reset(self, start: str, sharing: str, umask: int) -> None:
        """The area as this start is, made by the publisher under this umask."""
        self.settings(sharing)
        name = f"{start} {sharing} {umask:03o}"
        if name in self.starts.kept:
            self.starts.put_back(name)
            return
        before, commands = STARTS[start]
        if before:
            self.reset(before, sharing, umask)
        else:
            self._empty(sharing)
        for words in commands:
            self.ok("publisher", umask, words)
            if start == "kernel":
                for other in USERS[1:]:
                    self.run(other, umask, words)
        for handed_on in ("staging tree", "stacks"):  # to whom publishes, and to all
            if (self.area / handed_on).exists():
                subprocess.run(("chmod", "-R", "a+rX", self.area / handed_on), check=True)
        self.starts.keep(name)

    def _empty(self, sharing: str) -> None:
        shutil.rmtree(self.area, ignore_errors=True)
        self.area.mkdir()
        self.area.chmod(0o1777)
        for who, (uid, gid, *_) in self.users.items():
            for directory in (self.home(who), self.home(who) / "out put"):
                directory.mkdir(mode=0o700)
                os.chown(directory, uid, gid)
        stacks = self.area / "stacks"
        for number in (1, 2):
            text = PAIR.format(version=number, source=self.place.directory / "a.sif")
            write(stacks / f"Pair-{number}.yaml", text)
        all_of_it = ["{easyconfig: Pair-1.yaml, variants: [x, y]}", "{easyconfig: Pair-2.yaml, variants: [x, y]}"]
        write(stacks / "stack.yaml", f"name: two-rooms\neasyconfigs: [{', '.join(all_of_it)}]\n")
        write(
            stacks / "other.yaml",
            "name: two-rooms\neasyconfigs: [{easyconfig: Pair-2.yaml, variants: [y], default: true}]\n",
        )
        for path in (stacks, *stacks.iterdir()):
            os.chown(path, self.users["publisher"][0], getgrnam(SHARED_BY).gr_gid)
        stacks.chmod(0o755 if sharing == "none" else 0o2775)


def _users() -> dict[str, tuple[int, ...]]:
    """The users, made once on the machine: a runtime starts containers only for those who have a name."""
    found = {}
    for name in USERS:
        try:
            entry = pwd.getpwnam(f"sifmod-{name}")
        except KeyError:
            run(("useradd", "--system", "--user-group", "--shell", "/bin/bash", f"sifmod-{name}"))
            entry = pwd.getpwnam(f"sifmod-{name}")  # two test processes may have tried at once
        groups = (getgrnam(SHARED_BY).gr_gid,) if name in MEMBERS else ()
        found[name] = (entry.pw_uid, entry.pw_gid, *groups)
    return found


@contextmanager
def made_world(images: Images) -> Iterator[World]:
    """The machine, with no tree yet."""
    with TemporaryDirectory(dir=temporary(), prefix="sifmod-tests-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        top = Path(directory) / "a site"
        top.mkdir(mode=0o755)
        place = make_place(images, top)
        for tag in "abc":
            sif = top / f"{tag}.sif"
            sif.write_bytes(images.tiny(f"crash-{tag}").read_bytes())
            easyconfig = top / tag / "Tiny-1.0.yaml"
            easyconfig.write_text(easyconfig.read_text().replace(str(images.tiny(f"crash-{tag}")), str(sif)))
        for number, name in enumerate(("one image", "another image")):
            sif = top / name / "python.sif"
            write(top / name / "Python-3.11.yaml", PYTHON.format(source=sif))
            sif.write_bytes(images.python_sif.read_bytes() + b"0" * number)
        for wheels, versions in ((top / "wheels", ("1.0", "2.0")), (top / "old wheels", ("1.0",))):
            wheels.mkdir()
            for version in versions:
                wheel(wheels, "demo", version, requires=("helper",), scripts=("demo-says",))
            wheel(wheels, "helper", "2.5")
            wheel(wheels, "ipykernel", "6.0")
        helper = top / "wheels" / "helper-2.5-py3-none-any.whl"
        digest = sha256(helper.read_bytes()).hexdigest()
        write(top / "pylock.toml", PYLOCK.format(url=helper.as_uri(), digest=digest))
        for path in (top, *top.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        env = {**place.env, "PATH": RUNTIME.search_path}
        registry = Registry(top / "registry")
        with ExitStack() as stack:
            registry.start()
            stack.callback(registry.stop)
            victim = stack.enter_context(Victim(env))
            area = place.directory / "work area"
            world = World(place, victim, _users(), registry.address, Starts(area, place.directory / "starts"))
            world.settings("none")
            world._empty("none")
            assert victim.warm(("install", top / "a" / "Tiny-1.0.yaml", SKIP, "--extended-dry-run")).code == 0
            assert victim.warm(("doctor",)).code == 1  # which runtime there is: found out once
            yield world


PYLOCK = """
lock-version = "1.0"
created-by = "by hand"
requires-python = ">=3.11"

[[packages]]
name = "helper"
version = "2.5"
wheels = [{{url = "{url}", hashes = {{sha256 = "{digest}"}}}}]
"""


def options_of_all() -> Iterator[tuple[str, set[str]]]:
    """Each command that sifmod has, with its options, as click knows them."""

    def below(command: click.Command, name: str) -> Iterator[tuple[str, set[str]]]:
        if isinstance(command, click.Group):
            for each in command.list_commands(click.Context(command)):
                found = command.get_command(click.Context(command), each)
                assert found is not None
                yield from below(found, f"{name} {each}".strip())
        else:
            yield name, {one for each in command.params if isinstance(each, click.Option) for one in each.opts}

    yield from below(cli, "")
