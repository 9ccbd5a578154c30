"""Requirements as people have them: whole files, digests, constraints, indexes, projects here and in repositories."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from support.command import User, run
from support.config import write
from support.identity import call_as
from support.images import Images
from support.layered import BACKEND, NAME, Machine, make_machine
from support.package_index import serving
from support.wheels import wheel

SHOW = "import demo, helper; print(demo.__version__, helper.__version__)"
WRONG = "0" * 64


@pytest.fixture
def machine(shared_tmp: Path, images: Images) -> Machine:
    return make_machine(shared_tmp / "ma chine", images)


def compiled(machine: Machine, *requirements: str) -> Path:
    """A file with digests, as uv writes it."""
    asked = write(machine.top / "asked.in", "".join(f"{line}\n" for line in requirements))
    made = machine.top / "hashed.txt"
    words = ("pip", "compile", "--generate-hashes", "--python", sys.executable, "--no-index", "--find-links")
    run((find_uv_bin(), *words, machine.wheels, asked, "-o", made, "--no-config"), cwd=machine.top).ok()
    return made


def project(place: Path, name: str = "edited") -> Path:
    """A project that is built without anything else."""
    write(place / "backend.py", BACKEND.replace("Name: edited", f"Name: {name}").replace("edited-0.1", f"{name}-0.1"))
    write(
        place / "pyproject.toml",
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\ndynamic = ["version"]\n',
    )
    return place


def git(place: Path, *words: str) -> str:
    """Run git on a repository, as nobody in particular."""
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(("git", "-C", place, *who, *words), check=True, capture_output=True, text=True).stdout.strip()


def test_digests_of_a_file_hold(machine: Machine) -> None:
    """What `uv pip compile --generate-hashes` writes is one command; another file under the same name never comes."""
    path = compiled(machine, "demo")
    assert path.read_text().count("--hash=sha256:") == 2
    machine.add("-r", str(path)).ok()
    assert machine.python(SHOW).ok().stdout == "1.0 2.5\n"
    lock = (machine.live() / "pylock.toml").read_text()
    machine.sifmod("remove", NAME, "--all").ok()
    where = ("--no-index", "--find-links", str(machine.wheels))
    machine.sifmod("sync", NAME, str(path), *where).ok()
    assert machine.python(SHOW).ok().stdout == "1.0 2.5\n"
    assert (machine.live() / "pylock.toml").read_text() == lock

    # they hold for what is added later, too
    wheel(machine.wheels, "other")
    before = machine.listing()
    (machine.wheels / "demo-1.0-py3-none-any.whl").unlink()
    wheel(machine.wheels, "demo", "1.0", requires=("helper>=2",), files={"demo/evil.py": ""})
    refused = machine.add("other")
    assert (refused.code, machine.listing()) == (2, before)
    assert "error: no file of demo 1.0 with a required digest was found" in refused.stderr
    for words in (("add", NAME, "-r", str(path), *where), ("sync", NAME, str(path), *where)):
        assert machine.sifmod(*words).code == 2
    assert machine.listing() == before

    # and what comes along must have one, as with pip
    write(path, re.sub(r"helper==2\.5(?s:.)*", "", path.read_text()))
    refused = machine.add("-r", str(path), "--layer", "new")
    assert (refused.code, machine.listing()) == (2, before)


def test_a_wrong_digest_leaves_nothing(machine: Machine) -> None:
    path = write(machine.top / "requirements.txt", f"helper==2.5 --hash=sha256:{WRONG}\n")
    before = machine.listing()
    with serving(machine.wheels) as index:
        for words in (("--no-index", "--find-links", str(machine.wheels)), ("--index-url", index.url)):
            refused = machine.sifmod("add", NAME, "-r", str(path), *words)
            assert (refused.code, machine.listing()) == (2, before)
            assert "no file of helper 2.5 with a required digest was found" in refused.stderr
    # a line without one, a version that is left open, and a sync without digests
    for text, where in (("demo\n", ":2: demo has no digest, but others have"), ("", "")):
        path.write_text(f"helper==2.5 --hash=sha256:{WRONG}\n{text}" if text else "demo\n")
        refused = machine.sifmod("sync", NAME, str(path), "--extra-index-url", "http://127.0.0.1:1/simple/")
        assert refused.code == 2
        assert (where or ":1: demo has no digest") in refused.stderr
        assert "--generate-hashes" in refused.stderr
    assert machine.listing() == before


def test_all_digests_of_a_file_hold(machine: Machine) -> None:
    """uv takes a file that has any one of the digests that a lock, or the index, gives for it."""
    asked, other, name = machine.top / "asked", machine.top / "other", "mixed-1.0-py3-none-any.whl"
    for place in (asked, other):
        place.mkdir()
        wheel(place, "mixed", files={"mixed/which.py": f"print({place.name!r})\n"})
    sha256 = hashlib.sha256((asked / name).read_bytes()).hexdigest()
    required = write(machine.top / "required.txt", f"mixed==1.0 --hash=sha256:{sha256}\n")
    lock, before = machine.top / "pylock.toml", machine.listing()
    for kind, there in (("md5", other), ("sha512", other), ("sha512", asked)):
        content = (other / name).read_bytes()
        digests = {"sha256": sha256, kind: hashlib.new(kind, content, usedforsecurity=False).hexdigest()}
        with serving(there) as index:
            index.digests = digests
            url = index.url.replace("simple/", f"files/{name}")
            said = ", ".join(f'{key} = "{value}"' for key, value in digests.items())
            file = f'{{ url = "{url}", hashes = {{ {said} }} }}'
            block = f'[[packages]]\nname = "mixed"\nversion = "1.0"\nwheels = [{file}]\n'
            write(lock, f'lock-version = "1.0"\ncreated-by = "x"\n\n{block}')
            for words in (
                ("layer", "sync", NAME, str(lock)),
                ("layer", "sync", NAME, str(lock), "--no-index", "--find-links", str(there)),
                ("add", NAME, "-r", str(required), "--index-url", index.url),
            ):
                refused = machine.sifmod(*words)
                assert (refused.code, machine.listing()) == (18, before), (kind, words, refused)
                assert "Hash mismatch" in refused.stderr

    digests["sha512"] = hashlib.sha512((asked / name).read_bytes()).hexdigest()
    with serving(asked) as index:
        index.digests = {**digests, "md5": "0" * 32}
        machine.sifmod("add", NAME, "-r", str(required), "--index-url", index.url).ok()
    assert machine.python("import mixed.which").ok().stdout == "asked\n"


def test_a_file_with_constraints_and_an_index(machine: Machine) -> None:
    """One command; what is added later keeps to both."""
    wheel(machine.wheels, "helper", "3.0")
    wheel(machine.wheels, "demo", "2.0b1", requires=("helper",))
    wheel(machine.wheels, "later", requires=("helper",))
    write(machine.top / "files" / "more" / "constraints.txt", "helper<3  # no newer\n")
    with serving(machine.wheels) as index:
        write(
            machine.top / "files" / "requirements.txt",
            "-r more/demo.txt\n-c more/constraints.txt\n--index-url ${INDEX}\nabsent==1; python_version < '3'\n",
        )
        write(machine.top / "files" / "more" / "demo.txt", "demo \\\n  >=1 # a comment\n")
        machine.sifmod("add", NAME, "-r", "files/requirements.txt", env={"INDEX": index.url}).ok()
        assert machine.python(SHOW).ok().stdout == "1.0 2.5\n"
        assert "later" not in " ".join(index.asked)
        machine.sifmod("add", NAME, "later", "--upgrade").ok()
        assert machine.python(SHOW).ok().stdout == "1.0 2.5\n"
        assert "/simple/later/" in index.asked
        # given anew they replace those before
        write(machine.top / "none.txt", "")
        machine.sifmod("add", NAME, "-c", "none.txt", "--upgrade", "--pre").ok()
        assert machine.python(SHOW).ok().stdout == "2.0b1 3.0\n"
        refused = machine.sifmod("add", NAME, "demo==2.0b1", "-c", str(write(machine.top / "c.txt", "demo<2\n")))
        assert refused.code == 2
        before = machine.listing()
        refused = machine.sifmod("add", NAME, "demo", "--index-url", "http://me:secret@127.0.0.1:1/simple/")
        assert (refused.code, machine.listing()) == (2, before)
        assert "--index-url: http://127.0.0.1:1/simple/ contains a login" in refused.stderr


def test_a_layer_without_an_index_asks_none_later(machine: Machine) -> None:
    """An index may have something else under the name of a package of one's own."""
    strange = machine.top / "strange"
    strange.mkdir()
    wheel(strange, "helper", "2.5", files={"helper/strange.py": ""})
    wheel(machine.wheels, "other")
    with serving(strange) as index:
        env = {"UV_DEFAULT_INDEX": index.url}
        machine.add("demo", "other", env=env).ok()
        machine.sifmod("layer", "remove", NAME, "other", env=env).ok()
        machine.sifmod("add", NAME, "other", env=env).ok()
        assert index.asked == []
        assert machine.python("import helper.strange").code == 1
        # until it is given one
        machine.sifmod("add", NAME, "helper", "--upgrade", "--index-url", index.url).ok()
        assert "/simple/helper/" in index.asked
        index.asked.clear()
        machine.sifmod("add", NAME, "--upgrade").ok()
        assert "/simple/helper/" in index.asked


def test_another_index_does_not_replace_a_file_of_the_same_version(machine: Machine) -> None:
    with serving(machine.wheels) as own:
        env = {"UV_DEFAULT_INDEX": own.url}
        machine.sifmod("add", NAME, "demo", env=env).ok()
        before = machine.listing()
        wheel(machine.wheels, "third")
        wheel(machine.wheels, "helper", "2.5", files={"helper/strange.py": ""})
        refused = machine.sifmod("add", NAME, "third", env=env)
        assert (refused.code, machine.listing()) == (2, before)
        assert "error: helper 2.5 has other files than when it was added to the layer" in refused.stderr
        machine.sifmod("add", NAME, "third", "helper", env=env).ok()
        assert machine.python("import helper.strange").code == 0


def test_projects_and_wheels_by_path(machine: Machine) -> None:
    """Paths begin in the working directory, also in a file, as for pip; a project is taken as it is now."""
    home = machine.top / "home"
    here = project(home / "a project")
    write(here / "requirements.txt", "-e .\n")
    write(here / "sub" / "requirements.txt", "-e .\n./wheel-house/helper-2.5-py3-none-any.whl\n")
    (here / "wheel-house").symlink_to(machine.wheels)
    words = (sys.executable, "-m", "sifmod", "add", NAME, "--no-index")
    env = {**machine.env(), "HOME": str(home)}
    run((*words, "-r", "sub/requirements.txt"), env=env, cwd=here).ok()
    write(here / "inner.py", "VALUE = 1")
    show = "import inner, helper; print(inner.VALUE, helper.__version__)"
    assert machine.python(show, env=env).ok().stdout == "1 2.5\n"
    machine.sifmod("remove", NAME, "--all").ok()

    copied = project(home / "copied", "copied")
    body = (copied / "backend.py").read_text()
    for number in (1, 2):  # uv would take what it has built of the same pyproject.toml
        content = f'file.writestr("copied.pth", "import sys; sys.copied = {number}")'
        write(copied / "backend.py", re.sub(r"file\.writestr\(\"edited\.pth\".*", content, body))
        run((*words, "."), env=env, cwd=copied).ok()
        assert machine.python("import sys; print(sys.copied)", env=env).ok().stdout == f"{number}\n"
    lock = (machine.live() / "pylock.toml").read_text()
    assert "copied" not in lock
    (copied / "pyproject.toml").rename(copied / "gone")
    (copied).rename(home / "elsewhere")
    before = machine.listing()
    refused = machine.add("helper", env=env)
    assert (refused.code, machine.listing()) == (2, before)
    assert f"error: {copied}, which the layer needs, is gone" in refused.stderr
    machine.sifmod("remove", NAME, "copied", env=env).ok()


def test_a_repository_by_the_git_of_this_machine(machine: Machine) -> None:
    """The image has none; the lock has the commit, which later changes keep to."""
    assert machine.python("import shutil; print(shutil.which('git'))").ok().stdout == "None\n"
    place = machine.top / "repository"
    project(place / "in side", "fromgit")
    git(machine.top, "init", "--quiet", str(place))
    body = (place / "in side" / "backend.py").read_text()
    commits = []
    for number in (1, 2):
        content = f'file.writestr("fromgit.pth", "import sys; sys.fromgit = {number}")'
        write(place / "in side" / "backend.py", re.sub(r"file\.writestr\(\"edited\.pth\".*", content, body))
        git(place, "add", ".")
        git(place, "commit", "--quiet", "-m", "x")
        commits.append(git(place, "rev-parse", "HEAD"))
        git(place, "branch", "--force", "one", commits[0])
    show = "import sys; print(sys.fromgit)"
    url = f"git+{place.as_uri()}"
    machine.add(f"{url}@one#subdirectory=in%20side").ok()
    assert machine.python(show).ok().stdout == "1\n"
    lock = (machine.live() / "pylock.toml").read_text()
    assert f'"commit-id" = "{commits[0]}"' in lock
    assert '"subdirectory" = "in side"' in lock

    git(place, "branch", "--force", "one", commits[1])
    machine.add("helper").ok()
    assert machine.python(show).ok().stdout == "1\n"
    machine.add("--upgrade").ok()
    assert machine.python(show).ok().stdout == "2\n"
    path = write(machine.top / "pylock.toml", lock)
    machine.sifmod("sync", NAME, str(path), "--no-index", "--layer", "synced").ok()
    assert machine.python(show, env={"SIFMOD_LAYER": "synced"}).ok().stdout == "1\n"
    assert machine.python("import importlib.metadata as m; print(m.version('fromgit'))").ok().stdout == "0.1\n"

    before = machine.listing()
    for words, why in (
        ((f"{url}@nothere",), "git cannot fetch"),
        ((f"{url}@one#subdirectory=nothere",), "has no directory nothere"),
        ((f"{url}@--upload-pack=x",), "is not a revision"),
        ((f"x @ {url}@one#subdirectory=../..",), "is not a directory in a repository"),
        (("git+ext::sh -c x",), "is not a repository"),
    ):
        refused = machine.add(*words)
        assert (refused.code in (2, 10), why in refused.stderr) == (True, True), refused
    assert machine.listing() == before


def test_all_that_cannot_be_taken_is_said_at_once(machine: Machine) -> None:
    write(
        machine.top / "requirements.txt",
        "--prefer-binary\n-e git+https://example.org/x\nhg+https://example.org/x\n./nothere\ndemo\n-f nowhere\n"
        "https://example.org/unnamed\nx @ https://me:secret@example.org/x.whl\n-r nothere.txt\n--nope\n"
        "https://${TOKEN}@example.org/x-1-py3-none-any.whl\n${UNSET}\nx[\n",
    )
    before = machine.listing()
    refused = machine.sifmod("add", NAME, "-r", "requirements.txt", env={"TOKEN": "secret"})
    assert (refused.code, machine.listing()) == (2, before)
    said = re.findall(r"^  requirements\.txt:(\d+): .*; .*", refused.stderr, re.MULTILINE)
    assert said == [str(number) for number in range(1, 14) if number != 5], refused.stderr
    assert "secret" not in refused.stderr
    locked = machine.sifmod("add", NAME, "-r", "pylock.toml")
    assert "use `sifmod layer sync MODULE LOCK` for a lock" in locked.stderr


def test_what_is_upgraded_may_be_newer_than_in_the_image(machine: Machine) -> None:
    version = machine.python("import pip; print(pip.__version__)").ok().stdout.strip()
    wheel(machine.wheels, "pip", "99.0")
    machine.add("pip", "demo").ok()
    assert machine.python("import pip; print(pip.__version__)").ok().stdout.strip() == version
    machine.add("pip", "--upgrade").ok()
    assert machine.python("import pip; print(pip.__version__)").ok().stdout == "99.0\n"


def test_a_local_wheel_and_a_directory_of_others(machine: Machine) -> None:
    """Only the directory was searched for it."""
    (machine.top / "one").mkdir()
    for name in ("mine", "yours"):
        wheel(machine.top / "one", name, requires=("helper",))
    machine.add("./one/mine-1.0-py3-none-any.whl").ok()
    machine.add("yours @ ./one/yours-1.0-py3-none-any.whl", "demo").ok()
    machine.python("import demo, helper, mine, yours").ok()


def test_a_lock_names_files_beside_it(shared_tmp: Path, images: Images) -> None:
    """As for pip and uv; they were looked for in the layer."""
    machine = make_machine(shared_tmp / "ma chine", images)
    (machine.top / "files/sub").mkdir(parents=True)
    digest = hashlib.sha256(wheel(machine.top / "files/sub", "beside").read_bytes()).hexdigest()
    for number, kind in enumerate(("archive = {}", "wheels = [{}]")):
        file = kind.format(f"{{ path = 'sub/beside-1.0-py3-none-any.whl', hashes = {{ sha256 = '{digest}' }} }}")
        block = f'[[packages]]\nname = "beside"\nversion = "1.0"\n{file}\n'
        write(machine.top / "files/pylock.toml", f'lock-version = "1.0"\ncreated-by = "x"\n\n{block}')
        layer = f"l{number}"
        machine.sifmod("layer", "sync", NAME, "files/pylock.toml", "--no-index", "--layer", layer).ok()
        machine.python("import beside", env={"SIFMOD_LAYER": layer}).ok()


@pytest.mark.usefixtures("needs_root")
def test_a_layer_of_another_user_takes_nothing_that_is_closed_to_that_user(machine: Machine) -> None:
    """Any member of a shared tree could have the packages in another one's home put into a layer that all read."""
    author, private = 54_321, machine.top / "private"
    private.mkdir(0o700)
    file = wheel(private, "secret")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    block = (
        f'[[packages]]\nname = "secret"\nversion = "1.0"\narchive = {{ path = "{file}", hashes.sha256 = "{digest}" }}\n'
    )
    lock = write(machine.top / "pylock.toml", f'lock-version = "1.0"\ncreated-by = "x"\n\n{block}')
    os.chown(lock, author, author)
    before = machine.listing()
    refused = machine.sifmod("layer", "sync", NAME, str(lock))
    assert (refused.code, machine.listing()) == (2, before)
    assert f"error: {file} is closed to user {author}, who owns {lock}" in refused.stderr

    machine.add("helper").ok()
    before = machine.listing()
    receipt = machine.live().resolve() / "layer.json"
    made = json.loads(receipt.read_text())
    for planted, closed in (
        ({"places": [str(private)], "requirements": ["secret"]}, private),
        ({"words": ["--no-index", f"--index-url=file://{private}"], "requirements": ["secret"]}, private),
        ({"requirements": [f"secret @ {file.as_uri()}"]}, file),
        ({"editable": [f"{private}[all]"]}, private),
    ):
        receipt.write_text(json.dumps({**made, **planted}))
        os.chown(receipt, author, author)
        refused = machine.add("demo")
        assert (refused.code, machine.listing()) == (2, before), (planted, refused)
        assert f"error: {closed} is closed to user {author}, who owns {receipt}" in refused.stderr

    # and who has no access to what the layer needs learns that it is the layer
    for path in (machine.top, *machine.top.rglob("*")):
        if not path.is_relative_to(private):
            os.chown(path, author, author, follow_symlinks=False)
    own = {"HOME": str(machine.top), "SIFMOD_CONFIG_DIR": str(machine.top / "none")}
    for planted, needed in (({"places": [f"{private}/a"]}, f"{private}/a"), ({"editable": [str(file)]}, str(file))):
        receipt.write_text(json.dumps({**made, **planted}))
        refused = call_as(User(author, author), lambda: machine.sifmod("add", NAME, "demo", env=own))
        assert refused.code == 25
        assert f"error: {needed}, which the layer needs, is closed to you" in refused.stderr
        assert "--layer NAME" in refused.stderr
    assert machine.listing() == before


def test_an_editable_project_that_is_closed_to_the_users_of_the_tree(machine: Machine) -> None:
    """Their `import` found nothing, and nobody learned why."""
    edited = project(machine.top / "closed" / "edited").resolve()
    write(edited / "edited.py", "")
    closed, own = edited.parent, write(machine.top / "etc" / "tree.yaml", f"prefix: {machine.prefix}\nsharing: site\n")
    closed.chmod(0o700)
    env = {"SIFMOD_CONFIG_DIR": str(own.parent)}
    said = (
        f"users that may load {NAME} cannot import {edited}, because they cannot enter {closed}: its owner can run "
        f"`chmod o+x '{closed}'`"
    )
    added = machine.sifmod("add", NAME, "-e", f"{edited}[some]", env=env).ok()
    assert f"warning: {said}\n" in added.stderr
    verified = machine.sifmod("verify", env=env)
    assert (verified.code, said in verified.stderr) == (1, True)
    assert (
        "cannot import" not in machine.sifmod("add", NAME, "-e", str(edited), "--dir", str(machine.top / "own")).stderr
    )
    closed.chmod(0o711)
    machine.sifmod("verify", env=env).ok()
    assert "cannot import" not in machine.sifmod("add", NAME, "-e", str(edited), env=env).ok().stderr
