"""What a module does beside its variables: the image it finds, what it refuses, what it says about itself."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from loads import NAME, unloads, users, visited
from plans import HELP, IMAGE, PLAN, Published, plan, publish
from sifmod.config.name import ModuleName
from sifmod.module.plan import Bind
from support.command import run
from support.module_tool import ModuleTool, Step

SAYS = ("show", "help", "whatis", "spider", "avail")


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return str(tmp_path / "pre fix")


def said(step: Step) -> str:
    """Both outputs, without the line breaks that a module tool puts in."""
    return " ".join((step.stdout + step.stderr).split())


def says(tool: ModuleTool, published: Published, *verbs: str) -> dict[str, str]:
    """What the tool says of the module, with every verb asked for; each succeeds and changes nothing."""
    steps = [f"module {verb} {NAME}" for verb in verbs if verb != "spider" or tool.name == "lmod"]
    before, *done = tool.session(("true", *steps), published.modules)
    for step in done:
        step.ok()
        assert users(step) == users(before)
    return {
        verb: said(step)
        for verb, step in zip((v for v in verbs if v != "spider" or tool.name == "lmod"), done, strict=True)
    }


def refused(tool: ModuleTool, published: Published, *steps: str) -> Step:
    """The last step of these, which fails and changes nothing."""
    before, after = tool.session(("true", *steps), published.modules)[-2:]
    assert after.code != 0
    assert after.environment == {
        **before.environment,
        **{n: v for n, v in after.environment.items() if n.startswith(("LMOD_", "__LMOD_LAST_ERROR"))},
    }
    return after


def test_without_its_own_image_a_module_takes_the_central_copy(
    module_tool: ModuleTool, prefix: str, tmp_path: Path
) -> None:
    central = tmp_path / "central images"
    central.mkdir()
    (central / IMAGE.filename).write_bytes(b"")
    made = publish(plan(prefix=prefix, image=replace(IMAGE, image_dirs=("/no/such", str(central)))))
    steps = (f"module load {NAME}", 'rm "$SIF"', "module reload", f"module unload {NAME}")
    done = unloads(module_tool, made.modules, *steps, env={"SIF": "mine"})
    assert done[1].environment["SIF"] == str(made.image)
    assert done[3].environment["SIF"] == done[3].environment["SIFPYTORCH"] == str(central / IMAGE.filename)
    # again its own after the next install
    made.image.write_bytes(b"")
    assert visited(module_tool, made.modules, f"module load {NAME}")[1].environment["SIF"] == str(made.image)


def test_without_any_image_only_the_load_fails(module_tool: ModuleTool, prefix: str, tmp_path: Path) -> None:
    made = publish(plan(prefix=prefix, image=replace(IMAGE, image_dirs=(str(tmp_path),))), image=False)
    # a link to nowhere is no image either
    made.image.symlink_to(tmp_path / "gone.sif")
    failed = refused(module_tool, made, f"module load {NAME}")
    for part in (
        NAME,
        str(made.image),
        f"{tmp_path}/{IMAGE.filename}",
        "`sifmod install PyTorch-2.2.0 --prefix ",
    ):
        assert part in said(failed)
    assert f"{made.root}/{IMAGE.filename}" in says(module_tool, made, *SAYS)["show"]


def test_an_image_that_vanished_after_the_load(module_tool: ModuleTool, prefix: str) -> None:
    made = publish(plan(prefix=prefix))
    steps = (f"module load {NAME}", 'rm "$SIF"', f"module unload {NAME}", f"touch '{made.image}'")
    unloads(module_tool, made.modules, *steps, *steps[:3], env={"SIF": "mine"})
    # a reload that fails leaves what was loaded before
    refused(module_tool, made, f"touch '{made.image}'", f"module load {NAME}", 'rm "$SIF"', "module reload")


@pytest.mark.parametrize("verb", ["refresh", "list", "save", "is-loaded PyTorch"])
def test_no_other_verb_minds_a_missing_image(module_tool: ModuleTool, prefix: str, verb: str) -> None:
    made = publish(plan(prefix=prefix))
    loaded, _, after = module_tool.session((f"module load {NAME}", 'rm "$SIF"', f"module {verb}"), made.modules)
    after.ok()
    assert users(after) == users(loaded)


def test_a_collection_brings_the_module_back(module_tool: ModuleTool, prefix: str) -> None:
    made = publish(plan(prefix=prefix))
    steps = (f"module load {NAME}", "module save", "module purge", "module restore")
    done = module_tool.session(steps, made.modules, env={"SIF": "mine"})
    assert users(done[3].ok()) == users(done[0].ok())  # type: ignore[arg-type]


def test_a_missing_bind_source_is_named(module_tool: ModuleTool, prefix: str, tmp_path: Path) -> None:
    missing = (Bind(str(tmp_path / "a b"), "/a"), Bind("/no/such", "/no/such", ("ro",)))
    optional = Bind("/not/here", "/not/here", optional=True)
    made = publish(plan(prefix=prefix, binds=(Bind("/usr", "/x"), *missing, optional)))
    failed = refused(module_tool, made, f"module load {NAME}")
    assert f"{NAME} needs {tmp_path}/a b, /no/such, which this machine does not have" in said(failed)
    assert "/not/here" not in said(failed)
    assert "/no/such:/no/such:ro" in says(module_tool, made, "show", "help", "whatis")["show"]


def test_an_optional_bind_is_there_when_its_source_is(module_tool: ModuleTool, prefix: str, tmp_path: Path) -> None:
    made = publish(
        plan(prefix=prefix, binds=(Bind(str(tmp_path / "late"), "/late", ("ro", "image-src=/"), optional=True),))
    )
    steps = (f"module load {NAME}", f"module unload {NAME}", f"mkdir '{tmp_path}/late'")
    done = unloads(module_tool, made.modules, *steps, *steps[:2])
    runscripts = f"{made.root}/runscripts:/runscripts:ro"
    assert done[1].environment["SINGULARITY_BINDPATH"] == runscripts
    assert done[4].environment["SINGULARITY_BINDPATH"] == f"{runscripts},{tmp_path}/late:/late:ro,image-src=/"


def test_an_optional_bind_that_vanished_after_the_load(module_tool: ModuleTool, prefix: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    made = publish(plan(prefix=prefix, binds=(Bind(str(place), str(place), optional=True),)))
    unloads(module_tool, made.modules, f"module load {NAME}", f"rmdir '{place}'", f"module unload {NAME}")


def test_a_module_says_what_it_is(module_tool: ModuleTool, prefix: str) -> None:
    made = publish(plan(prefix=prefix))
    told = says(module_tool, made, *SAYS)
    for part in (
        "PyTorch, a machine learning package",
        "python, pip",
        "#SBATCH --nodes=2",
        f"module use '{prefix}/modules' module load {NAME}",
        'srun apptainer exec "$SIF" conda-python-distributed -u train.py',
        "torch 2.2.0, torchvision 0.17.0",
        "Image: docker://registry.example/pytorch:2.2.0",
        "sifmod install PyTorch-2.2.0",
        "https://pytorch.org/docs",
    ):
        assert part in told["help"]
    assert "Description: PyTorch, a machine learning package" in told["whatis"]
    assert "URL: https://pytorch.org" in told["whatis"]
    assert NAME in told["avail"]


def test_show_is_what_a_load_would_do(module_tool: ModuleTool, prefix: str) -> None:
    made = publish(plan(prefix=prefix))
    shown = says(module_tool, made, "show")["show"]
    for name in ("SIF", "SIFPYTORCH", "EBROOTPYTORCH", "APPTAINERENV_NCCL_DEBUG", "MPICH_GPU_SUPPORT_ENABLED"):
        assert name in shown
    for name in ("SINGULARITY_BINDPATH", "APPTAINER_BINDPATH"):
        assert "/usr:/usr/host" in shown.partition(name)[2]
    assert f"{made.root}/bin" in shown
    assert "_SIFMOD" not in shown


def test_spider_finds_a_package_within_the_image(lmod: ModuleTool, prefix: str) -> None:
    odd = (("a,b", "1"), ("c d", "1"), ("e", "1/2"))
    made = publish(plan(prefix=prefix, help=replace(HELP, contents=(*HELP.contents, *odd))))
    found = lmod.run("module spider torchvision", made.modules).ok()
    assert NAME in said(found)  # type: ignore[arg-type]
    assert "torchvision/0.17.0" in said(lmod.run(f"module spider {NAME}", made.modules))


def test_whatis_of_the_easyconfig_is_used(module_tool: ModuleTool, prefix: str) -> None:
    lines = ("Description: line one\nline two", "Keywords: PyTorch, DeepSpeed")
    made = publish(plan(prefix=prefix, help=replace(HELP, whatis=lines)))
    whatis = says(module_tool, made, "whatis")["whatis"]
    assert "Description: line one line two" in whatis
    assert "Keywords: PyTorch, DeepSpeed" in whatis
    assert HELP.description not in whatis


def test_whatis_is_the_first_paragraph_where_the_easyconfig_describes_nothing(
    module_tool: ModuleTool, prefix: str
) -> None:
    told = replace(HELP, description="Line one\nline two.\n\nMore.", whatis=("Keywords: a",))
    whatis = says(module_tool, publish(plan(prefix=prefix, help=told)), "whatis")["whatis"]
    assert "Description: Line one line two." in whatis
    assert "More" not in whatis


@pytest.mark.parametrize("others", [1, 300])
def test_conflicts(module_tool: ModuleTool, prefix: str, others: int) -> None:
    names = tuple(f"other{number}" for number in range(others))
    made = publish(plan(prefix=prefix, conflict=names))
    last = made.modules / names[-1]
    last.mkdir()
    (last / "1.lua").write_text("")
    (last / "1").write_text("#%Module1.0\n")
    assert names[-1] in said(refused(module_tool, made, f"module load {names[-1]}", f"module load {NAME}"))
    unloads(module_tool, made.modules, f"module load {NAME}", f"module unload {NAME}")


def test_a_family_admits_one_member(module_tool: ModuleTool, prefix: str) -> None:
    made = publish(plan(prefix=prefix, family="containers", env=(("A", "a"),)))
    publish(plan(prefix=prefix, family="containers", module=ModuleName("B", "1"), env=(("B", "b"),)))
    if module_tool.name == "environment-modules":
        refused(module_tool, made, "module load B", f"module load {NAME}")
        unloads(module_tool, made.modules, f"module load {NAME}", f"module unload {NAME}")
    else:
        steps = ("module load B", f"module load {NAME} 2>message", "module unload PyTorch", "cat message")
        done = unloads(module_tool, made.modules, *steps)
        alone = visited(module_tool, made.modules, f"module load {NAME}")
        strip = {"LMOD_FAMILY_CONTAINERS", "LMOD_FAMILY_CONTAINERS_VERSION"}
        assert {k: v for k, v in users(done[2]).items() if k not in strip} == users(alone[1])


def test_two_versions_are_not_loaded_at_once(environment_modules: ModuleTool, prefix: str) -> None:
    """Lmod swaps them; Environment Modules would load both."""
    made = publish(plan(prefix=prefix))
    publish(plan(prefix=prefix, module=ModuleName("PyTorch", "3")))
    assert "conflict" in said(refused(environment_modules, made, f"module load {NAME}", "module load PyTorch/3"))


@pytest.mark.parametrize(
    ("shell", "initialise", "echo"),
    [
        ("bash", ". /usr/share/lmod/lmod/init/bash", 'echo "$SIF|$SINGULARITY_BINDPATH"'),
        ("zsh", ". /usr/share/lmod/lmod/init/zsh", 'echo "$SIF|$SINGULARITY_BINDPATH"'),
        ("fish", "source /usr/share/lmod/lmod/init/fish", 'echo "$SIF|$SINGULARITY_BINDPATH"'),
        ("tcsh", "source /usr/share/lmod/lmod/init/csh", 'echo "$SIF"; echo "$SINGULARITY_BINDPATH"'),
    ],
)
def test_every_shell_of_lmod(lmod: ModuleTool, prefix: str, shell: str, initialise: str, echo: str) -> None:
    made = publish(plan(prefix=prefix))
    script = f"{initialise}\nmodule load {NAME}\n{echo}\nenv -0 >loaded\nmodule unload {NAME}\nenv -0 >after\n"
    env = {**lmod.clean_environment(), "MODULEPATH": str(made.modules), "SIF": "mine; $x 'y'"}
    no_startup = {"bash": ("--norc",), "zsh": ("-f",), "fish": ("--no-config",), "tcsh": ("-f",)}[shell]
    work = Path(prefix)
    run((shell, *no_startup, "-c", script), env=env, cwd=work).ok()
    loaded, after = (
        dict(p.split("=", 1) for p in (work / f).read_text().split("\0") if p) for f in ("loaded", "after")
    )
    assert loaded["SIF"] == str(made.image)
    assert loaded["APPTAINER_BINDPATH"] == f"{made.root}/runscripts:/runscripts:ro,/usr:/usr/host"
    assert after["SIF"] == env["SIF"]
    of_ours = ("APPTAINER_B", "SINGULARITY", "_SIFMOD", "EBROOT")
    assert not [name for name in after if name.startswith(of_ours) and name not in env]


def test_a_tcl_module_under_lmod_does_what_lmod_can(lmod: ModuleTool, tmp_path: Path) -> None:
    defaults = (("HAVE", "default"), ("LACK", "default"))
    made = publish(
        plan(prefix=str(tmp_path / "prefix"), syntaxes=("tcl",), default_env=defaults)
    )  # no space: Lmod's Tcl
    env = {"SIF": "mine", "SINGULARITY_BINDPATH": "/a,/b:/c:ro", "HAVE": "mine"}
    steps = (f"module load {NAME}", f"module show {NAME}", f"module help {NAME}", f"module unload {NAME}")
    done = lmod.session(("true", *steps), made.modules, env)
    for step in done:
        step.ok()
    loaded = done[1].environment
    assert (loaded["SIF"], loaded["HAVE"], loaded["LACK"]) == (str(made.image), "mine", "default")
    expected = f"/a,/b:/c:ro,{made.root}/runscripts:/runscripts:ro,/usr:/usr/host"
    assert loaded["SINGULARITY_BINDPATH"] == loaded["APPTAINER_BINDPATH"] == expected
    assert "EBROOTPYTORCH" in said(done[2])
    assert "#SBATCH" in said(done[3])
    assert users(done[-1]) == users(done[0])
    made.image.unlink()
    assert "brings it back" in said(refused(lmod, made, f"module load {NAME}"))


def test_the_stub_is_the_same_for_every_generation(prefix: str) -> None:
    made = publish(plan(prefix=prefix), generation=1)
    before = {path: path.read_text() for path in made.modules.rglob("*") if path.is_file()}
    publish(plan(prefix=prefix, easyconfig="Other", env=(), binds=(), image=replace(IMAGE, filename="x")), generation=2)
    assert {path: path.read_text() for path in made.modules.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in before) == ["2.2.0-rocm-5.6.1", "2.2.0-rocm-5.6.1.lua"]


def test_each_tool_lists_the_module_once(module_tool: ModuleTool, prefix: str) -> None:
    listed = module_tool.run("module -t avail 2>&1", publish(plan(prefix=prefix)).modules).ok().stdout
    assert [line for line in listed.split() if "PyTorch/" in line and "2.2.0" in line] == [NAME]


def test_generated_lua_is_clean(prefix: str) -> None:
    more = {"default_env": (("A", "b"),), "depends_on": ("c",)}
    made = publish(plan(prefix=prefix, conflict=("a",), family="b", user_software=True, **more))
    files = [*made.root.rglob("*.lua"), *made.modules.rglob("*.lua")]
    assert len(files) == 4
    known = "mode setenv unsetenv prepend_path append_path help whatis extensions conflict family "
    known += "LmodError LmodMessage LmodVersion myModuleUsrName"
    known += " depends_on loaded_modules"
    run(("luac5.3", "-p", *files), cwd=prefix).ok()
    globals_ = (
        "--globals",
        "mcp",
        "--read-globals",
        *known.split(),
        "myFileName",
        "myModuleFullName",
        "convertToCanonical",
    )
    run(("luacheck", "--std", "lua53", "--no-max-line-length", *files, *globals_), cwd=prefix).ok()


def test_generated_tcl_parses(prefix: str) -> None:
    made = publish(plan(prefix=prefix, conflict=("a",), family="b", user_software=True))
    for file in (*made.root.rglob("*.tcl"), made.modules / NAME):
        text = file.read_text()
        check = subprocess.run(("tclsh",), input=f"exit [expr {{![info complete {{{text}}}]}}]".encode(), check=False)
        assert check.returncode == 0, file
    assert PLAN.syntaxes == ("lua", "tcl")


def test_a_stub_whose_module_is_gone(module_tool: ModuleTool, prefix: str) -> None:
    made = publish(plan(prefix=prefix))
    gone = f"rm -r '{prefix}/software'"
    _, unloaded = module_tool.session((f"module load {NAME}; {gone}", f"module unload {NAME}"), made.modules)
    assert f"{prefix}/software/{NAME}/modulefile.{module_tool.syntax}".replace(" ", "") in "".join(
        unloaded.stderr.split()
    )
    failed = refused(module_tool, made, f"module load {NAME}")
    assert f"install {NAME} again with sifmod" in said(failed)
    says(module_tool, made, "show", "whatis", "avail", "spider")


def test_spider_finds_a_package_that_the_site_names(lmod: ModuleTool, prefix: str) -> None:
    contents = (("torch", "2.2.0"), ("deepspeed", "0.12"), ("six", "1.16"))
    made = publish(plan(prefix=prefix, help=replace(PLAN.help, contents=contents, extensions=contents[1:2])))
    spider = lmod.run("module spider deepspeed 2>&1", made.modules).ok().stdout
    assert NAME in spider
    assert "Unable to find" in lmod.run("module spider six 2>&1", made.modules).stdout
    listed = lmod.run("module avail 2>&1", made.modules).ok().stdout
    assert "deepspeed" in listed
    assert "torch " not in listed.replace("(", " ")
