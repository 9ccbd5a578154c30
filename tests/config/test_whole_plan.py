"""A plan in full, of an easyconfig and a site that say everything, and of ones that say as little as possible."""

from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.config.easyconfig import Conversion, SanityCheck
from sifmod.config.load_easyconfig import load_easyconfig
from sifmod.config.load_site import load_site
from sifmod.config.name import ModuleName
from sifmod.config.quirk import read_quirk
from sifmod.module.image_origin import NO_ORIGIN, ImageOrigin, from_fields
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.plan import (
    Activation,
    Bind,
    BuildPlan,
    Help,
    ImagePlan,
    Plan,
    Runtime,
    Wrapper,
)
from support.config import write

DIGEST, TREE = "a" * 64, "b" * 64
EASYCONFIG = f"""
name: Big-App+
version: '1.5'
versionsuffix: -x
description: what it is
homepage: https://home
docurls: [https://docs]
whatis: ['Keywords: a']
contents: {{torch: '2.2'}}
accelerator: rocm
image:
  filename: big.sif
  sources: ['docker://me:secret@r/a:1', other.sif]
  sha256: '{DIGEST}'
  arch: arm64
  available: here and there
  conversion: {{compression: 'zstd:3', tools: {{mksquashfs: '4.6'}}, tree: '{TREE}'}}
activate: source /x
binds: ['/a:/t:ro', {{source: /b, optional: true}}]
env: {{A: mine, C: mine}}
host_env: {{H: mine}}
default_env: {{Z: one, Y: two}}
runscript_env: {{R: mine}}
path: [/one, /two]
wrappers: [python, list-packages, python, {{ip: "python -m 'I P'"}}, make-squashfs, {{unmake-squashfs: own}}, auto]
verb: run
user_software: true
gpu_selection: localid
runscripts: [get-master, start-shell, get-master]
conflict: [Other]
depends_on: [Needed/1]
family: fam
sanity_check: {{commands: ['true'], paths: [/p]}}
"""
SITE = """
name: here
accelerators: {rocm: devices}
runtime: singularity
prefix: /prefix
image_dirs: [/i, /j]
binds: {a: ['/c:/t', /d, '/e:/dev/kfd']}
env: {A: site, B: site, GONE: site}
host_env: {H: site, GONE: site, S: site}
runscript_env: {R: site, GONE: site, Q: site}
gpu_selection: none
gpus_per_node: 8
cache_directory: /cache
module_syntax: both
"""


def planned(tmp_path: Path, easyconfig: str, site: str, choices: Choices, quirk: str = "") -> Plan:
    path = write(tmp_path / "x.yaml", easyconfig)
    environ = {"HOME": str(tmp_path), "SIFMOD_CONFIG_DIR": str(tmp_path / "none"), "SIFMOD_ARCH": "amd64"}
    loaded = load_site({"site": str(write(tmp_path / "site.yaml", site))}, environ)
    quirks = (read_quirk(write(tmp_path / "q.yaml", quirk))[0],) if quirk else ()
    return make_plan(load_easyconfig(path, loaded, None, {}, environ).easyconfig, loaded.site, choices, quirks)


QUIRK = "description: d\nreason: because\nlink: https://why\nmatch: {name: A}\nenv: {GONE: null}\n"


def test_a_plan_of_everything(tmp_path: Path) -> None:
    assert planned(tmp_path, EASYCONFIG, SITE, Choices("x.yaml --site here", "hardlink", True), QUIRK) == Plan(
        module=ModuleName("Big-App+", "1.5-x"),
        version="1.5",
        easyconfig="x.yaml --site here",
        prefix="/prefix",
        syntaxes=("lua", "tcl"),
        accelerator="rocm",
        gpu_flags=(),
        runtime=Runtime("singularity", ""),
        image=ImagePlan(
            filename="big.sif",
            sources=("docker://me:secret@r/a:1", "other.sif"),
            image_dirs=("/i", "/j"),
            build=None,
            sha256=DIGEST,
            arch="arm64",
            link="hardlink",
            offline=True,
            available="here and there",
            conversion=Conversion.model_validate(
                {"compression": "zstd:3", "tools": {"mksquashfs": "4.6"}, "tree": TREE}
            ),
        ),
        activation=Activation("source /x", "source /x", users_venv=True),
        binds=(
            Bind("/a", "/t", ("ro",)),
            Bind("/b", "/b", optional=True),
            Bind("/d", "/d"),
            Bind("/e", "/dev/kfd"),
            Bind("/dev/dri", "/dev/dri", optional=True),
        ),
        env=(
            ("A", "mine"), ("B", "site"), ("C", "mine"), ("LD_PRELOAD", ""), ("PIP_USER", "0"),
            ("PYTHONNOUSERSITE", "1"), ("PYTHONPATH", ""),
        ),
        host_env=(("H", "mine"), ("S", "site")),
        default_env=(("Y", "two"), ("Z", "one")),
        path=("/one", "/two"),
        wrappers=(
            Wrapper("python", ("python",)),
            Wrapper("list-packages", ("/runscripts/list-packages",)),
            Wrapper("ip", ("python", "-m", "I P")),
            Wrapper("unmake-squashfs", ("own",)),
        ),
        runscripts=("get-master", "start-shell", "list-packages"),
        runscript_env=(("Q", "site"), ("R", "mine")),
        conflict=("Other",),
        depends_on=("Needed/1",),
        family="fam",
        help=Help(
            description="what it is",
            homepage="https://home",
            docurls=("https://docs",),
            whatis=("Keywords: a",),
            contents=(("torch", "2.2"),),
            origin=f"docker://r/a:1 (sha256 {DIGEST})",
            extensions=(("torch", "2.2"),),
            quirks=(("q: d (no GONE)", "because (https://why)"),),
        ),
        sanity_check=SanityCheck(commands=("true",), paths=("/p",)),
        verb="run",
        user_software=True,
        gpu_selection="localid",
        gpus_per_node=8,
        cache_directory="/cache",
        wrappers_auto=True,
    )  # fmt: skip


LEAST = "name: App\nversion: '1'\nimage: {build: /x.def}\n"


def test_a_plan_of_the_least(tmp_path: Path) -> None:
    made = planned(tmp_path, LEAST, "name: here\naccelerator: none\nmodule_syntax: lua\n", Choices("x", "copy"))
    assert (made.gpu_flags, made.binds, made.conflict, made.family) == ((), (), (), None)
    assert made.image == ImagePlan("App-1.sif", (), (), BuildPlan(definition="/x.def"), None, "amd64", "copy", False)
    assert made.help.origin == "built from /x.def"
    assert (made.verb, made.user_software, made.gpu_selection, made.gpus_per_node) == ("exec", False, "slurm", 4)
    assert (made.wrappers, made.wrappers_auto) == ((Wrapper("start-shell", ("/runscripts/start-shell",)),), False)
    assert made.runscripts == (
        *("conda-python-simple", "conda-python-distributed", "get-master", "start-shell", "list-packages"),
        *("torchrun-distributed", "gpu-check"),
    )
    assert made.prefix == f"{tmp_path}/.local/share/sifmod"


@pytest.mark.parametrize(
    ("accelerator", "resolved", "flags", "devices"),
    [
        ("rocm", "{rocm: rocm, cuda: none}", ("rocm",), 0),
        ("rocm", "{rocm: none, cuda: nv}", (), 0),
        ("rocm", "{rocm: devices}", (), 2),
        ("cuda", "{rocm: devices, cuda: nv}", ("nv",), 0),
        ("cuda", "{cuda: nvccli}", ("nvccli",), 0),
        ("cuda", "{rocm: rocm, cuda: none}", (), 0),
        ("none", "{rocm: devices, cuda: nv}", (), 0),
    ],
)
def test_what_a_site_makes_of_an_accelerator(
    tmp_path: Path, accelerator: str, resolved: str, flags: tuple[str, ...], devices: int
) -> None:
    made = planned(
        tmp_path, f"{LEAST}accelerator: {accelerator}\n", f"accelerators: {resolved}\n", Choices("x", "copy")
    )
    assert (made.gpu_flags, len(made.binds), made.accelerator) == (flags, devices, accelerator)


def test_what_the_runtime_is_told(tmp_path: Path) -> None:
    made = planned(tmp_path, EASYCONFIG, SITE, Choices("x", "copy"))
    assert (made.runtime.prefixes, made.runtime.candidates) == (("SINGULARITY",), ("singularity", "apptainer"))
    apptainer = Runtime("apptainer", "/o/apptainer")
    assert apptainer.prefixes == ("SINGULARITY", "APPTAINER")
    assert apptainer.candidates == ("/o/apptainer", "apptainer", "singularity")
    assert made.binds_of("/r")[0] == Bind("/r/runscripts", "/runscripts", ("ro",))
    assert made.binds_of("/r")[1:] == made.binds
    assert made.user_software_of("/r") == (
        Bind("/r/user-software.squashfs", "/user-software", ("ro", "image-src=/")),
        Bind("/r/user-software", "/user-software"),
    )
    assert made.packers == ("make-squashfs",)
    without = replace(made, user_software=False)
    assert (without.user_software_of("/r"), without.packers) == ((), ())
    odd = replace(made, env=(("B", 'a$b`c\\d"e'), ("A", "1")), path=("/a$b",))
    assert odd.plain_env == (("A", "1"), ("B", 'a$b`c\\d"e'), ("WITH_CONDA", "source /x"))
    assert odd.container_env == (("A", "1"), ("B", 'a\\$b\\`c\\\\d"e'), ("WITH_CONDA", "source /x"))
    assert odd.prepend_path == ("/a\\$b",)
    assert made.images_of("/r") == ("/r/big.sif", "/i/big.sif", "/j/big.sif")
    assert made.switch == "/software/Big-App+/1.5-x"
    assert made.place_of(7) == "/software/Big-App+/.generations/1.5-x/7"
    plain = replace(made.activation, users_venv=False)
    assert plain.activated(("a", "b")) == ("bash", "-c", 'source /x && exec "$@"', "bash", "a", "b")
    assert plain.activated(("/runscripts/a", "b")) == ("/runscripts/a", "b")
    assert plain.activated(("/runscriptsx",))[0] == "bash"
    assert Activation("source /x", "").activated(("a",)) == ("a",)


@pytest.mark.parametrize(
    ("name", "variable"),
    [("App", "APP"), ("a-b+c.d_1", "AMINBPLUSCD_1"), ("é1", "1"), ("C++", "CPLUSPLUS"), ("x²", "X")],
)
def test_a_name_within_a_variable(name: str, variable: str) -> None:
    assert ModuleName(name, "1").variable == variable


def test_a_bind_as_a_runtime_spells_it() -> None:
    assert str(Bind("/a", "/a")) == "/a"
    assert str(Bind("/a", "/b")) == "/a:/b"
    assert str(Bind("/a", "/a", ("ro", "id=1"))) == "/a:/a:ro,id=1"


def test_an_origin_is_read_back() -> None:
    origin = ImageOrigin("sha256:1", "sha256:2", ("sha256:3", "sha256:4"), "zstd", (("a", "1"), ("b", "2")))
    for each in (origin, NO_ORIGIN):
        assert from_fields(each.as_data()) == each
    with pytest.raises(TypeError, match="expected an object, got list"):
        from_fields([])
    with pytest.raises(KeyError):
        from_fields({"tools": [], "layers": []})
    with pytest.raises(ValueError, match="unpack"):
        from_fields({**origin.as_data(), "tools": [["a"]]})
