"""Every command that writes: killed, beside a second one of the same kind, among what an attacker has planted.

And with logins, none of which it keeps.

A new command is in all of these tests as soon as it is in COMMANDS of tests/support/writing_commands.py.
"""

import base64
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from support.disk_state import disk_state
from support.images import Images
from support.victim import Outcome, Victim
from support.writing_commands import COMMANDS, Command, World, made_world, options_of_all

UMASK = 0o022
IN_THE_TREE = tuple(command for command in COMMANDS if command.writes == "prefix")
TO_A_FILE = tuple(command for command in COMMANDS if command.writes == "output" and "{out}/" in command.words)
SAME_PLACES = """
--json --quiet --yes --offline --site --prefix --robot-paths --image-dirs --accelerator --runtime
--module-syntax --processors --compression --keep-blobs --fail-fast --jobs --only --wait --variant --source
--arch --sha256 --from --pip --name --version --name-from --module-tree --editable --requirement --onto
--no-build-isolation --no-import --layer --dir --unpacked --without --title --force --locked --robot --local-settings
--rebuild --account --partition --nodes --time --timeout --style --bcast --minimum --network --origins --keys
--signature --format --until --successor --days --marks --hooks --stack
--fail-on-held --pre --constraint --index-url --extra-index-url --upgrade --syntax
"""  # a command writes where it does without them
ELSEWHERE = {  # what needs more than a tree, and the tests that have it
    "stack apply --job": "test_slurm_stack.py",
    "test --job": "test_tested_module.py",
    "test --junit": "../cli/test_test_verb.py",
    "jupyter --lab": "test_jupyter.py",
    "push --add-to-index": "test_push.py",
}
HUNG, BUG = -14, 70
PRIVATE = "the publisher's own words"


@pytest.fixture(scope="module")
def world(needs_root: None, images: Images) -> Iterator[World]:  # noqa: ARG001
    with made_world(images) as made:
        yield made


def test_every_option_that_makes_another_write_is_listed() -> None:
    known = {*SAME_PLACES.split(), *(f"{each.verb} {option}" for each in COMMANDS for option in each.options)}
    every = [(verb, option) for verb, options in options_of_all() for option in options]
    found = {f"{verb} {option}" for verb, option in every if option not in known} - known
    found = {each for each in found if " --" in each and not each.startswith("stack apply --job-")}
    assert found == ELSEWHERE.keys()
    for words, file in ELSEWHERE.items():
        assert f'"{words.split()[-1]}"' in (Path(__file__).parent / file).read_text()


@dataclass(frozen=True)
class Undisturbed:
    """What a command does when it is alone, in a tree of the group."""

    codes: tuple[int | None, ...]  # of the command, and of the same once more
    steps: int  # of the first
    made: tuple[Path, ...]  # the first makes them in the prefix
    unlogged: frozenset[str]  # images that the first brought or removed, and that no log names
    result: tuple[str, ...]  # of both


@pytest.fixture(scope="module")
def undisturbed(world: World) -> dict[Command, Undisturbed]:
    found = {}
    for command in IN_THE_TREE:
        world.reset(command.start, "group", UMASK)
        before, stored = set(files(world.prefix)), images_in(world)
        first = by_publisher(world, command)
        unlogged = (stored ^ images_in(world)) - logged(world)
        made = tuple(path for path in sorted({*files(world.prefix)} - before) if ".locks" not in path.parts)
        codes = (first.code, by_publisher(world, command).code)
        found[command] = Undisturbed(codes, first.steps, made, unlogged, result(world))
    return found


def by_publisher(world: World, command: Command, how: str = "whole", step: int = 0) -> Outcome:
    return world.run("publisher", UMASK, command.words, how, step)


def images_in(world: World) -> frozenset[str]:
    return frozenset(image.stem for image in world.prefix.glob("images/sha256/*.sif"))


def logged(world: World) -> frozenset[str]:
    """The images that the logs name: what was fetched alone in the store's, another one in its module's."""
    logs = [*world.prefix.glob("log/store.log"), *world.prefix.glob("log/modules/*/*.log")]
    return frozenset(json.loads(line)["image"] for log in logs for line in log.read_text().splitlines())


def test_what_comes_into_the_store_and_goes_is_in_a_log(undisturbed: dict[Command, Undisturbed]) -> None:
    assert {str(command): alone.unlogged for command, alone in undisturbed.items() if alone.unlogged} == {}


def test_a_killed_command_is_repeated(world: World, undisturbed: dict[Command, Undisturbed]) -> None:
    """Killed at one of its steps: the same command then does what it would have done, and nothing is left."""
    wrong = []
    for number, command in enumerate(IN_THE_TREE):
        alone = undisturbed[command]
        world.reset(command.start, "group", UMASK)
        step = max(1, alone.steps * (number % 4 + 1) // 5)
        by_publisher(world, command, "killed", step)
        again = by_publisher(world, command)
        checked = world.run("publisher", UMASK, "verify")
        left = [path.name for path in world.prefix.glob(".staging/*")]
        if again.code not in alone.codes or checked.code != 0 or left:
            wrong.append(f"{command}, step {step} of {alone.steps}: {again} {checked} {left}")
    assert not wrong, "\n".join(wrong)


def test_two_of_each_at_once(world: World, undisturbed: dict[Command, Undisturbed]) -> None:
    """One result, as of two that come one after the other; nothing is left over, and the tree can be worked in."""
    wrong = []
    with Victim(world.victim.env) as second, ThreadPoolExecutor(2) as threads:
        warm = (*world.place.install("a"), "--extended-dry-run")
        assert second.warm(warm).code == 0
        worlds = (world, replace(world, victim=second))
        for command in IN_THE_TREE:
            alone, expected = undisturbed[command].codes, undisturbed[command].result
            world.reset(command.start, "group", UMASK)
            done = list(threads.map(lambda one, command=command: by_publisher(one, command), worlds))
            found = result(world)
            codes = {one.code for one in done}
            if alone[0] not in codes or not codes <= {*alone}:
                wrong.append(f"{command}: {alone} {done}")
            if found != expected:
                wrong.append(f"{command}: {expected} {found}")
            checked = world.run("publisher", UMASK, "verify")
            left = [path.name for path in world.prefix.glob(".staging/*")]
            if checked.code != 0 or left:
                wrong.append(f"{command}: {checked} {left}")
    assert not wrong, "\n".join(wrong)


def result(world: World) -> tuple[str, ...]:
    """What there is of modules, layers and images, by the commands that list it; a time is one of the command's own."""
    listed = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", world.run("publisher", UMASK, "list").stdout)
    layers = world.run("publisher", UMASK, "layers").stdout
    images = sorted(path.name for path in world.prefix.glob("images/sha256/*"))
    return listed, layers, *images


def as_link(path: Path, private: Path) -> None:
    path.symlink_to(private)


def as_pipe(path: Path, private: Path) -> None:  # noqa: ARG001
    os.mkfifo(path, 0o666)


def as_hard_link(path: Path, private: Path) -> None:
    """Of a file of the attacker's, which is open to all; nobody may link what is another's."""
    own = private.parent.parent / "of the member"
    own.touch()
    own.chmod(0o666)
    os.link(own, path)


@pytest.mark.parametrize("plant", [as_link, as_pipe, as_hard_link])
def test_a_member_plants_what_the_command_will_write(
    world: World, undisturbed: dict[Command, Undisturbed], plant: Callable[[Path, Path], None]
) -> None:
    """Nothing outside the prefix changes, nothing private comes into it, and the command ends."""
    wrong = []
    for command in IN_THE_TREE:
        world.reset(command.start, "group", UMASK)
        private = privately(world)
        for path in undisturbed[command].made:
            if path.parent.is_dir():
                plant(path, private)
                os.chown(path, *world.users["member"][:2], follow_symlinks=False)
        wrong += harm(world, private, command)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("plant", [as_link, as_pipe, as_hard_link])
def test_a_stranger_plants_it_in_a_sticky_directory(world: World, plant: Callable[[Path, Path], None]) -> None:
    wrong = []
    for command in TO_A_FILE:
        world.reset(command.start, "site", UMASK)
        out = Path(world.names("publisher")["out"])
        world.home("publisher").chmod(0o711)
        out.chmod(0o1777)
        os.chown(out, 0, 0)
        private = privately(world)
        name = command.words.split("{out}/")[1].split()[0]
        for each in (name, f".{name}.fetching", f".{name}.lock", f".{name}.part", f"{name}.part", f".{name}.tmp"):
            plant(out / each, private)
            os.chown(out / each, *world.users["stranger"][:2], follow_symlinks=False)
        wrong += harm(world, private, command)
    assert not wrong, "\n".join(wrong)


def privately(world: World) -> Path:
    """A file of the publisher's that only the publisher can read."""
    home = world.home("publisher") / "private"
    home.mkdir(mode=0o700)
    (home / "words").write_text(PRIVATE)
    (home / "words").chmod(0o600)
    for path in (home, home / "words"):
        os.chown(path, *world.users["publisher"][:2])
    return home / "words"


def harm(world: World, private: Path, command: Command) -> list[str]:
    """What a command has done to what is private, or to what the attacker can read."""
    before = disk_state(private.parent)
    done = by_publisher(world, command)
    wrong = [f"{command}: {done}"] if done.code in (HUNG, BUG) else []
    wrong += [f"{command} changed what is private: {done}"] if disk_state(private.parent) != before else []
    wrong += [f"{command}: {path} has it" for path in holding(world.area, PRIVATE) if path != str(private)]
    own = private.parent.parent / "of the member"
    return wrong + ([f"{command} wrote through a hard link"] if own.exists() and own.stat().st_size else [])


def files(top: Path) -> Iterator[Path]:
    yield from (path for path in top.rglob("*") if path.is_symlink() or not path.is_dir())


def holding(top: Path, text: str) -> list[str]:
    """The files with this text in them; no link is followed."""
    places = [path for path in top.rglob("*") if path.is_file() and not path.is_symlink()]
    found = subprocess.run(("grep", "-alF", "-e", text, "--", *places), capture_output=True, check=False, text=True)
    return found.stdout.splitlines()


def test_no_command_keeps_or_prints_a_login(world: World) -> None:
    """A password where a user may have one: netrc, docker's file, variables of the runtimes, of uv and of a proxy."""
    host = world.registry.partition(":")[0]
    files = {
        ".netrc": f"machine {host}\nlogin me\npassword s3cret-netrc\n",
        ".docker/config.json": json.dumps({"auths": {world.registry: {"auth": encoded("me:s3cret-docker")}}}),
    }
    login = "http://me:s3cret-proxy@127.0.0.1:9"
    env = {
        "APPTAINER_DOCKER_PASSWORD": "s3cret-apptainer",
        "SINGULARITY_DOCKER_PASSWORD": "s3cret-singularity",
        "UV_INDEX_COMPANY_PASSWORD": "s3cret-uv",
        "UV_INDEX_URL": "http://me:s3cret-index@127.0.0.1:9/simple",
        "GITHUB_TOKEN": "s3cret-token",
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY"), login),
        "no_proxy": "127.0.0.1",
    }
    wrong = []
    for command in COMMANDS:
        world.reset(command.start, "site", UMASK)
        home = world.home("publisher")
        for name, text in files.items():
            (home / name).parent.mkdir(exist_ok=True)
            (home / name).write_text(text)
            os.chown(home / name, *world.users["publisher"][:2])
        done = world.run("publisher", UMASK, command.words, env=env)
        planted = {str(home / name) for name in files}
        for secret in ("s3cret", encoded("me:s3cret-docker")):
            held = set(holding(world.area, secret)) - planted
            if held or secret in done.stdout + done.stderr:
                wrong.append(f"{command}: {held} {done}")
    assert not wrong, "\n".join(wrong)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
