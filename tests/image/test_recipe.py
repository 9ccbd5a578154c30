"""A recipe: what it makes of a base, that the same is made once and with the same bytes, and what is refused."""

import base64
import hashlib
import json
import os
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sifmod.digest import sha256_file
from sifmod.errors import FetchError, SifmodError
from sifmod.image.artifact import Artifact
from sifmod.image.convert.extend import extend
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.fetch import announced_size, fetch_image
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.settings import DEFAULT
from sifmod.module.plan import ImagePlan, Runtime
from support.config import write
from support.extending import base_of, taken_out
from support.fetching import Prefix, plan
from support.images import Images
from support.recipes import HOME, LIBRARY, base, contents, recipe
from support.squashfs_trees import unpacked
from support.wheels import wheel

Make = Callable[..., Artifact]


@pytest.fixture(scope="module")
def sif(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all that uv can take packages from."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    wheel(directory, "helper", "2.0", scripts=("helper-says",))
    wheel(directory, "demo", requires=("helper>=2", "torch"), files={"demo-1.0.data/data/share/demo.txt": "shared\n"})
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(directory))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return directory


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


def made(prefix: Prefix, image: ImagePlan, **settings: Any) -> Artifact:
    with prefix.store() as store:
        return fetch_image(image, plan().runtime, store, settings=replace(DEFAULT, **settings))


@pytest.mark.usefixtures("wheels")
def test_what_a_recipe_makes_of_its_base(tmp_path: Path, sif: Path, prefix: Prefix) -> None:
    write(tmp_path / "bert/deep/a.py", "a\n")
    write(tmp_path / "run.sh", "#!/bin/sh\n").chmod(0o755)
    (tmp_path / "bert/link").symlink_to("deep/a.py")
    image = recipe(
        sif,
        pip=("demo",),
        files=((f"{tmp_path}/bert/", "/opt/bert"), (f"{tmp_path}/run.sh", "/opt/./bin//")),
        env=(("HF_HOME", "/tmp/$hf"),),
        labels=(("maintainer", "me"), ("org.sifmod.build.base", "not this")),
    )
    artifact = made(prefix, image)
    before, after = contents(sif), contents(artifact.path)
    own = {path: text for path, text in after.items() if before.get(path) != text and not path.startswith("/.sing")}
    gone = {path for path in before.keys() - after.keys() if not path.startswith("/.sing")}

    # a distribution goes as a whole, with what was compiled of it
    assert gone == {
        *(f"{LIBRARY}/helper/{name}" for name in ("old.py", "deep/er.py", "__pycache__/old.cpython-311.pyc")),
        f"{LIBRARY}/helper/deep/__pycache__/er.cpython-311.pyc",
        *(f"{LIBRARY}/helper-1.0.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL")),
    }
    assert {path for path in own if "dist-info" not in path} == {
        *(f"{LIBRARY}/{name}/__init__.py" for name in ("helper", "demo")),
        *(f"{HOME}/bin/helper-says", f"{HOME}/share/demo.txt", "/opt/bert/deep/a.py", "/opt/bin/run.sh"),
    }
    assert own[f"{HOME}/bin/helper-says"].startswith(b"#!/opt/env/bin/python3\n# -*- coding")
    record = own[f"{LIBRARY}/demo-1.0.dist-info/RECORD"].decode()
    assert "../../../share/demo.txt,sha256=" in record
    assert "uv_cache" not in record
    says = own[f"{LIBRARY}/helper-2.0.dist-info/RECORD"].decode()
    assert f"../../../bin/helper-says,{_digest(own[f'{HOME}/bin/helper-says'])}" in says

    place = "/.singularity.d/build/1"
    told = json.loads(after[f"{place}/recipe.json"])
    assert (told["requirements"], told["env"]) == (["demo"], {"HF_HOME": "/tmp/$hf"})
    assert told["files"]["opt/bert/link"] == "link deep/a.py"
    assert str(tmp_path) not in json.dumps(told)
    locked = tomllib.loads(after[f"{place}/pylock.toml"].decode())["packages"]
    assert [(one["name"], one["version"]) for one in locked] == [("demo", "1.0"), ("helper", "2.0")]
    assert str(tmp_path) not in after[f"{place}/pylock.toml"].decode()
    said = describe_sif(artifact.path)
    labels = dict(said.config.labels)
    assert {"of": "the base", "maintainer": "me", "org.sifmod.build.base": f"sha256:{sha256_file(sif)}"}.items() <= (
        labels.items()
    )
    assert dict(said.config.environment) == {"LANG": "C", "HF_HOME": "/tmp/$hf"}
    assert artifact.origin.layers == (f"sha256:{sha256_file(sif)}",)
    assert any("helper 2.0 is used instead of the image's 1.0" in note for note in artifact.notes)
    assert not any("to pin this image" in note for note in artifact.notes)
    assert any(note.startswith("the image keeps torch 2.0") for note in artifact.notes)


def _digest(content: bytes) -> str:
    made = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={made},{len(content)}"


def test_the_same_is_built_once_and_has_the_same_bytes_elsewhere(
    tmp_path: Path, sif: Path, wheels: Path, prefix: Prefix
) -> None:
    file = write(tmp_path / "a.txt", "one\n")
    image = recipe(sif, pip=("demo",), files=((str(file), "/a.txt"),))
    first = made(prefix, image)
    there = prefix.state()
    elsewhere = Prefix(tmp_path / "else/where")
    assert made(elsewhere, image, processors=2).sha256 == first.sha256

    (wheels / "demo-1.0-py3-none-any.whl").unlink()  # nothing is resolved any more
    other = replace(image, filename="other.sif")
    again = made(prefix, other)
    assert (again.sha256, again.notes) == (first.sha256, ("an earlier build of the same recipe is used",))
    assert prefix.state() == there

    file.write_text("two\n")
    with pytest.raises(FetchError, match="the package demo was not found"):
        made(prefix, image)
    assert prefix.state() == there
    wheel(wheels, "demo", requires=("helper>=2", "torch"))
    assert made(prefix, image).sha256 != first.sha256


def test_a_lock_pins_everything(
    tmp_path: Path, sif: Path, wheels: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(prefix, recipe(sif, pip=("demo",)))
    lock = tmp_path / "pylock.toml"
    lock.write_bytes(contents(first.path)["/.singularity.d/build/1/pylock.toml"])
    wheel(wheels, "helper", "3.0")
    image = recipe(sif, requirements=str(lock))
    locked = made(prefix, image)
    assert f"{LIBRARY}/helper-2.0.dist-info/METADATA" in contents(locked.path)
    assert made(Prefix(tmp_path / "elsewhere"), image).sha256 == locked.sha256
    assert contents(made(prefix, recipe(sif, pip=("demo", "helper"))).path, LIBRARY).keys() >= {
        f"{LIBRARY}/helper-3.0.dist-info/METADATA"
    }

    there = prefix.state()
    wheel(wheels, "demo", files={"demo/other.py": ""})  # not the one that was locked
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))  # which would have the right one
    fresh = recipe(sif, requirements=str(lock), labels=(("a", "b"),))
    with pytest.raises(FetchError, match="cannot install the packages"):
        made(prefix, fresh)
    assert prefix.state() == there


@pytest.mark.usefixtures("wheels")
def test_a_recipe_upon_a_recipe(sif: Path, prefix: Prefix) -> None:
    lower = replace(recipe(sif, pip=("helper==2.0",)), link="reference")
    upper = recipe(sif, pip=("demo",))
    assert upper.build is not None
    artifact = made(prefix, replace(upper, build=replace(upper.build, base=lower)))
    found = contents(artifact.path, "/.singularity.d/build")
    assert [path for path in found if path.endswith("recipe.json")] == [
        f"/.singularity.d/build/{number}/recipe.json" for number in (1, 2)
    ]
    locked = tomllib.loads(found["/.singularity.d/build/2/pylock.toml"].decode())["packages"]
    assert [one["name"] for one in locked] == ["demo"]
    with prefix.store() as store:
        below = fetch_image(lower, plan().runtime, store)  # built before
    assert describe_sif(below.path).bases == (f"sha256:{sha256_file(sif)}",)
    assert describe_sif(artifact.path).bases == (f"sha256:{sha256_file(sif)}", f"sha256:{below.sha256}")


def test_without_packages_no_python_is_needed(tmp_path: Path, prefix: Prefix) -> None:
    top = tmp_path / "top"
    write(top / "bin/sh", "")
    plain = base_of(top, tmp_path / "plain.sif")
    artifact = made(prefix, recipe(plain, env=(("A", "b"),), protected=()))
    assert dict(describe_sif(artifact.path).config.environment) == {"A": "b"}
    with pytest.raises(FetchError, match="the base has no Python to add packages to"):
        made(prefix, recipe(plain, pip=("six",)))


def test_a_sparse_file_that_has_no_room_is_not_read(tmp_path: Path, sif: Path, prefix: Prefix) -> None:
    huge = write(tmp_path / "a place" / "huge.bin", "")
    os.truncate(huge, 1 << 42)
    before = sorted(prefix.path.rglob("*"))
    with pytest.raises(FetchError, match=r"huge.bin has 4.4 TB, of which 0 B are allocated, and .* are free"):
        made(prefix, recipe(sif, files=((str(huge.parent), "/opt/data"),)))
    assert {path for path in prefix.path.rglob("*") if path.suffix == ".sif"} <= {
        *before,
        *(prefix.layout.image(sha256_file(sif)),),
    }


def test_a_file_that_changes_while_the_image_is_built(
    tmp_path: Path, sif: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "notes.txt", "as the recipe was read\n")

    def late(*given: Any) -> tuple[str, ...]:
        write(tmp_path / "notes.txt", "as it was copied\n")
        return extend(*given)

    monkeypatch.setattr("sifmod.image.sources.recipe.extend", late)
    there, image = prefix.state(), recipe(sif, files=((str(tmp_path / "notes.txt"), "/opt/notes.txt"),))
    with pytest.raises(FetchError, match="a file of the recipe was changed while the image was built"):
        made(prefix, image)
    assert prefix.state() == there
    monkeypatch.undo()
    assert contents(made(prefix, image).path)["/opt/notes.txt"] == b"as it was copied\n"


def test_a_file_that_becomes_a_program_gives_another_image(tmp_path: Path, sif: Path, prefix: Prefix) -> None:
    script = write(tmp_path / "a place/run.sh", "#!/bin/sh\n")
    image = recipe(sif, files=((str(script), "/opt/run.sh"),))
    for mode in (0o644, 0o755):
        script.chmod(mode)
        tree = unpacked(taken_out(made(prefix, image).path, tmp_path / f"squashfs-{mode}"), tmp_path / f"top-{mode}")
        assert (tree / "opt/run.sh").stat().st_mode & 0o777 == mode


def test_a_base_that_is_damaged_in_the_store(images: Images, prefix: Prefix) -> None:
    """A byte of its data, which nothing reads but what copies it."""
    image = recipe(Path(f"oci:{images.tiny_layout()}"), env=(("A", "b"),), protected=())
    assert image.build is not None
    assert image.build.base is not None
    with prefix.store() as store:
        stored = fetch_image(image.build.base, plan().runtime, store)
    data = bytearray(stored.path.read_bytes())
    data[read_sif(stored.path).primary.offset + 1000] ^= 1
    stored.path.chmod(0o644)
    stored.path.write_bytes(data)
    there = prefix.state()
    with pytest.raises(FetchError, match="is damaged in the store") as caught:
        made(prefix, image)
    assert "`sifmod install --force` fetches it again and rebuilds the image" in caught.value.hint
    assert prefix.state() == there
    again = made(prefix, image, fresh=True)
    assert sha256_file(stored.path) == stored.sha256 == again.origin.layers[0].removeprefix("sha256:")


@pytest.mark.parametrize(
    ("pip", "message"),
    [
        ("torch==2.1", "torch==2.1 is required; the image has torch 2.0, which stays"),
        ("fixed==2.0", "fixed==2.0 is required; the image has fixed 1.0, which stays"),
        ("needs", "needs needs torch <2; the image has torch 2.0"),
        ("nothing", "the package nothing was not found"),
        ("source", "source==1.0 has no wheel for this image, so it would have to be compiled"),
        ("windows", "windows==1.0 has no wheel for this image, so it would have to be compiled"),
        ("hides", "hides 1.0 brings its own torch; the image has torch 2.0, which stays"),
        ("mixes", f"a package brings its own {LIBRARY}/torch/version.txt; the image has one, which stays"),
        ("python", "Scripts must not use the reserved name `python3`"),
        ("climbs", "cannot install the packages"),
        ("through", "uv crashed; the last package that it chose was "),  # nested, or through: uv may not say all
    ],
)
def test_what_does_not_go_with_the_base_is_refused(
    tmp_path: Path, sif: Path, wheels: Path, prefix: Prefix, pip: str, message: str
) -> None:
    for version in ("2.0", "2.1"):
        wheel(wheels, "fixed", version)
        wheel(wheels, "torch", version)
    wheel(wheels, "needs", requires=("torch<2",))
    wheel(wheels, "hides", files={"torch/__init__.py": "mine"})
    wheel(wheels, "mixes", files={"torch/version.txt": "mine"})
    wheel(wheels, "python", files={"python-1.0.data/data/bin/python3": "#!/bin/sh\n"})
    wheel(wheels, "climbs", scripts=("../../../../climbed",))
    wheel(wheels, "through", requires=("nested",))
    wheel(wheels, "nested", requires=(f"x ; {'(' * 50_000}python_version > '3'{')' * 50_000}",))
    wheel(wheels, "windows").rename(wheels / "windows-1.0-cp311-cp311-win_amd64.whl")
    with zipfile.ZipFile(wheels / "source-1.0.zip", "w") as source:
        source.writestr("source-1.0/PKG-INFO", "Metadata-Version: 2.1\nName: source\nVersion: 1.0\n")
        source.writestr("source-1.0/setup.py", "raise SystemExit('run')")
    there = prefix.state(sif.parent, wheels)
    with prefix.store() as store, pytest.raises(SifmodError) as caught:
        fetch_image(recipe(sif, pip=(pip,)), Runtime("apptainer", ""), store)  # which could compile
    assert caught.value.exit_code == 10
    assert message in caught.value.message
    assert prefix.state(sif.parent, wheels) == there
    assert not list(tmp_path.rglob("climbed"))
    assert [path for path in (tmp_path / "uv").glob("*linked/*") if path.is_dir()] == []


@pytest.mark.parametrize(
    "files",
    [
        {"torch/__init__.pyc": ""},
        {"torch/__init__.abi3.so": ""},
        {"torch.pyc": ""},
        {"hides.pth": "other\n", "other/torch/__init__.py": ""},
        {"torch/__init__.py": "", "z/RECORD": "no RECORD"},
    ],
)
def test_what_python_would_import_instead_of_a_protected_package(
    sif: Path, wheels: Path, prefix: Prefix, files: dict[str, str]
) -> None:
    wheel(wheels, "hides", files=files)
    with pytest.raises(FetchError, match=r"hides 1.0 brings its own torch; the image has torch 2.0, which stays"):
        made(prefix, recipe(sif, pip=("hides",)))


@pytest.mark.parametrize("record", [b"\xff\n", b"x" * 140_000])
def test_a_second_record_in_a_wheel_that_cannot_be_read(sif: Path, wheels: Path, prefix: Prefix, record: bytes) -> None:
    path = wheel(wheels, "two")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("two-1.0.data/purelib/other.dist-info/RECORD", record)
    with pytest.raises(FetchError, match=r"other.dist-info/RECORD of a package cannot be read"):
        made(prefix, recipe(sif, pip=("two",)))


@pytest.mark.parametrize("place", ["lib/python3.99/site-packages", "lib64/python3.11/site-packages"])
def test_data_of_a_wheel_that_goes_to_another_directory_of_packages(
    sif: Path, wheels: Path, prefix: Prefix, place: str
) -> None:
    wheel(wheels, "data", files={f"data-1.0.data/data/{place}/other.py": ""})
    found = contents(made(prefix, recipe(sif, pip=("data",))).path)
    assert {f"{HOME}/{place}/other.py", f"{LIBRARY}/data/__init__.py"} <= found.keys()


def test_a_python_here_that_keeps_compiled_packages_in_lib64(
    tmp_path: Path, sif: Path, wheels: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of RHEL, Fedora and SLES."""
    venv.create(tmp_path / "host")
    write(
        Path(sysconfig.get_path("purelib", "venv", {"base": str(tmp_path / "host")}), "of.pth"),
        "import sys; sys.platlibdir = 'lib64'\n",
    )
    monkeypatch.setattr(sys, "executable", str(tmp_path / "host/bin/python"))
    monkeypatch.setattr(sys, "platlibdir", "lib64")
    wheel(wheels, "compiled", scripts=("compiled-says",), pure=False)
    found = contents(made(prefix, recipe(sif, pip=("compiled", "helper==2.0"))).path)
    assert {f"{LIBRARY}/{name}/__init__.py" for name in ("compiled", "helper")} <= found.keys()
    assert b"../../../bin/compiled-says," in found[f"{LIBRARY}/compiled-1.0.dist-info/RECORD"]
    assert not [path for path in found if "lib64" in path]


@pytest.mark.parametrize(
    "name",
    [
        "../../../../../../escaped",
        "{}/escaped",
        "climbs-1.0.data/data/../../../../../escaped",
        "climbs-1.0.data/headers/../../../../../../escaped",
        "climbs/../../escaped",
    ],
)
def test_a_wheel_that_leads_out_of_its_place_is_refused(
    tmp_path: Path, sif: Path, wheels: Path, prefix: Prefix, name: str
) -> None:
    """Each time: uv, which leaves such a file out, says it when it unpacks the wheel first."""
    wheel(wheels, "climbs", files={name.format(tmp_path): "x"})
    there = prefix.state(sif.parent, wheels)
    for _ in range(2):
        with pytest.raises(FetchError, match=r"a package has a path outside of its directory: '.*escaped'"):
            made(prefix, recipe(sif, pip=("climbs", "helper==2.0")))
        assert prefix.state(sif.parent, wheels) == there
    assert not list(tmp_path.rglob("escaped"))
    wheel(wheels, "climbs")
    assert f"{LIBRARY}/climbs/__init__.py" in contents(made(prefix, recipe(sif, pip=("climbs",))).path)


def _changed(tmp_path: Path, sif: Path, file: str, text: str) -> Path:
    """The base with one file of its packages longer by `text`."""
    unpacked(taken_out(sif, tmp_path / "taken"), tmp_path / "top")
    path = tmp_path / "top" / LIBRARY.lstrip("/") / file
    path.write_text(path.read_text() + text)
    return base_of(tmp_path / "top", tmp_path / "changed.sif")


@pytest.mark.usefixtures("wheels")
def test_a_record_takes_nothing_out_of_another_place(tmp_path: Path, sif: Path, prefix: Prefix) -> None:
    libc = "/lib/x86_64-linux-gnu/libc.so.6"
    named = (libc, f"../../../../../{libc}", f"/{LIBRARY}/torch/version.txt", "/.singularity.d/labels.json")
    record = "".join(f"{path},,\n" for path in named)
    changed = _changed(tmp_path, sif, "helper-1.0.dist-info/RECORD", record)
    found = contents(made(prefix, recipe(changed, pip=("helper==2.0",))).path)
    assert {libc, f"{LIBRARY}/torch/version.txt"} <= found.keys()
    assert f"{LIBRARY}/helper/old.py" not in found


@pytest.mark.usefixtures("wheels")
def test_a_conda_package_goes_as_a_whole_and_with_its_record(
    tmp_path: Path, sif: Path, wheels: Path, prefix: Prefix
) -> None:
    """What a record names beside its distribution goes too, but neither what stays nor what is outside."""
    unpacked(taken_out(sif, tmp_path / "taken"), tmp_path / "top")
    home, short = tmp_path / "top/opt/env", LIBRARY.removeprefix(f"{HOME}/")
    for package, names in {
        "helper-1.0-0": (
            "etc/helper.conf",
            f"{short}/helper/__init__.py",
            f"{short}/torch/version.txt",
            "../../lib/outside",
        ),
        "fixed-1.0-0": (f"{short}/fixed/__init__.py",),
        "two-1.0-0": (f"{short}/torch-2.0.dist-info/METADATA", f"{short}/helper-1.0.dist-info/METADATA"),
        "odd-1.0-0": (3,),
    }.items():
        own = f"{short}/{package.removesuffix('-0')}.dist-info/METADATA"
        write(home / f"conda-meta/{package}.json", json.dumps({"files": [*names, own]}))
    write(home / "conda-meta/broken-1.0-0.json", "[")
    write(home / "etc/helper.conf", "conda's\n")
    write(tmp_path / "top/lib/outside", "outside\n")
    conda = base_of(tmp_path / "top", tmp_path / "conda.sif")
    wheel(wheels, "fixed", "2.0")  # conda says which files 1.0 has, though it has no RECORD
    before = contents(conda).keys()
    made_of = made(prefix, recipe(conda, pip=("helper==2.0", "fixed==2.0")))
    after = contents(made_of.path).keys()
    assert {path for path in before - after if "/helper" not in path} == {
        f"{HOME}/conda-meta/fixed-1.0-0.json",
        *(f"{LIBRARY}/fixed-1.0.dist-info/{name}" for name in ("METADATA", "WHEEL")),
    }
    assert {path for path in before - after if "conda-meta" in path or "etc" in path} == {
        *(f"{HOME}/conda-meta/{name}-1.0-0.json" for name in ("fixed", "helper")), f"{HOME}/etc/helper.conf"
    }  # fmt: skip
    assert f"{LIBRARY}/fixed-2.0.dist-info/METADATA" in after


@pytest.mark.usefixtures("wheels")
def test_a_record_that_cannot_be_read(tmp_path: Path, sif: Path, prefix: Prefix) -> None:
    changed = _changed(tmp_path, sif, "helper-1.0.dist-info/RECORD", "x" * 140_000)
    there = prefix.state()
    with pytest.raises(FetchError, match=r"helper-1.0.dist-info/RECORD of the base cannot be read"):
        made(prefix, recipe(changed, pip=("demo",)))
    assert prefix.state() == there


@pytest.mark.usefixtures("wheels")
@pytest.mark.parametrize("need", ["fixed; (", "fixed >dev", "fixed @ file:///build/fixed"])
def test_what_a_base_needs_in_words_that_uv_does_not_read(tmp_path: Path, sif: Path, prefix: Prefix, need: str) -> None:
    changed = _changed(tmp_path, sif, "torch-2.0.dist-info/METADATA", f"Requires-Dist: {need}\n")
    assert f"{LIBRARY}/demo/__init__.py" in contents(made(prefix, recipe(changed, pip=("demo",))).path)


@pytest.mark.usefixtures("wheels")
def test_no_bytecode_is_added(tmp_path: Path, sif: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_COMPILE_BYTECODE", "1")
    monkeypatch.setenv("UV_CONFIG_FILE", str(write(tmp_path / "uv.toml", "[pip]\ncompile-bytecode = true\n")))
    found = contents(made(prefix, recipe(sif, pip=("demo",))).path, LIBRARY)
    assert [path for path in found if "__pycache__" in path] == []


@pytest.mark.usefixtures("wheels")
def test_files_that_are_not_there_and_requirements_that_are_none(tmp_path: Path, sif: Path, prefix: Prefix) -> None:
    wanted = write(tmp_path / "wanted.txt", "six @ https://example.org/six.whl\n")
    cases = (
        ({"files": ((f"{tmp_path}/none", "/a"),)}, "No such file"),
        ({"requirements": f"{tmp_path}/none.txt"}, "there is no file"),
        ({"requirements": str(wanted)}, "six.whl names a path or URL; a recipe takes packages from an index, by name"),
        ({"requirements": str(write(tmp_path / "o.txt", "-e .\n"))}, "o.txt:1: --editable is not supported; a recipe"),
        ({"requirements": str(write(tmp_path / "pylock.toml", "no lock"))}, "this is not a PEP 751"),
        ({"requirements": str(write(tmp_path / "empty.toml", "\n"))}, "empty.toml is empty, so it is not a lock"),
        ({"requirements": str(write(tmp_path / "deep.toml", f"a = {'[' * 9000}"))}, "nested too deep"),
        ({"requirements": str(write(tmp_path / "me.toml", _WITH_LOGIN))}, "https://host/a.whl contains a login"),
        ({"requirements": str(write(tmp_path / "here.toml", _BY_DIRECTORY))}, "or one with a directory"),
        ({"files": ((str(_pipe(tmp_path)), "/a"),)}, "is not a file, directory or link"),
        (
            {"files": ((str(wanted), "/opt"),)},
            "/opt cannot be added: the base has a directory, or a link to one, there",
        ),
    )
    there = prefix.state()
    for build, message in cases:
        with pytest.raises(FetchError, match=message):
            made(prefix, recipe(sif, **build))
        assert prefix.state() == there


_BY_DIRECTORY = "[[packages]]\nname = 'own'\nversion = '1.0'\ndirectory={path = '/own'}\n"
_WITH_LOGIN = "[[packages]]\nname = 'a'\narchive = {url = \"https:\\u002F/me:s3cret\\u0040host/a.whl\"}\n"


def _pipe(directory: Path) -> Path:
    os.mkfifo(directory / "pipe")
    return directory / "pipe"


def test_a_promise_holds_for_what_is_built(sif: Path, prefix: Prefix) -> None:
    image = recipe(sif, env=(("A", "b"),))
    with prefix.store() as store:
        assert announced_size(image, plan().runtime, store) == sif.stat().st_size
    there = prefix.state()
    with pytest.raises(FetchError, match="has a wrong SHA-256"):
        made(prefix, replace(image, sha256="0" * 64))
    assert prefix.state() == there
    artifact = made(prefix, image)
    sif.rename(sif.with_suffix(".away"))
    try:  # the promised one is there: its base is not asked for
        assert made(prefix, replace(image, sha256=artifact.sha256)).sha256 == artifact.sha256
    finally:
        sif.with_suffix(".away").rename(sif)
    assert read_sif(artifact.path).arch == "amd64"
