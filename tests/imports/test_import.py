"""`sifmod import`: files of other tools become easyconfigs that check, render and load, or are refused."""

import json
import os
from pathlib import Path

import pytest

from plans import publish
from sifmod.cli.main import run
from sifmod.config.easyconfig import Easyconfig
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.scripts import scripts
from support.command import SIFMOD
from support.command import run as call
from support.config import Configuration
from support.disk_state import disk_state
from support.module_tool import ModuleTool

INPUTS = Path(__file__).parents[1] / "import"
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    return directory


def read(path: Path) -> Easyconfig:
    return Configuration(path.parent.parent / "config").load(path).easyconfig


def test_an_easybuild_easyconfig(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(INPUTS / "easybuild" / "Demo-1.2.3-rocm-6.0-test.eb")]) == 0
    out, err = capsys.readouterr()
    assert out == "Demo-1.2.3-rocm-6.0-test.yaml\n"
    made = read(here / out.strip())
    assert str(made.module) == "Demo/1.2.3-rocm-6.0-test"
    assert made.description == "Demo 1.2.3 on Python  3.12, 100% tested.\n\n    $ start-shell\n"
    assert made.homepage == "https://demo.example/demo/1.2"
    assert made.docurls == ("https://demo.example/docs", "https://demo.example/faq")
    assert made.whatis == ("Description: Demo, of no use", "Keywords: a, b")
    assert made.contents == (("rocm", "6.0"), ("Demo", "1.2.3"))
    assert made.accelerator == "rocm"
    sif = "lumi-demo-rocm-6.0-v1.2.3.sif"
    assert made.required_image.sources == (sif, f"https://demo.example/images/{sif}")
    assert (made.required_image.filename, made.required_image.sha256) == (sif, "0" * 64)
    assert made.conda is not None
    assert (made.conda.prefix, made.conda.env) == ("/opt/miniconda3", "demo")
    binds = [(bind.source, bind.target, bind.options, bind.optional) for bind in made.binds]
    assert binds == [
        ("/var/spool/slurmd", "/var/spool/slurmd", (), True),
        ("/pfs", "/pfs", (), True),
        ("/a", "/b", ("ro",), True),
        ("/flash", "/flash", (), True),
    ]
    assert made.user_software
    assert dict(made.env)["DEMO"] == "inside"
    assert dict(made.host_env) == {"DEMO_LEVEL": "3", "DEMO_MORE": "xxx", "DEMO_LAST": "y"}
    assert made.path == ("/runscripts", "/user-software/venv/demo/bin")
    assert made.wrappers == ("start-shell", "python", "python3")
    assert made.runscripts == ("get-master", "conda-python-simple")
    assert made.conflict == ("demo-bindings",)
    assert made.sanity_check.commands == ('python --version | grep -q "3.12"',)
    for what in ("demo.docker", "bin/own", "python-conda-simple", "touch", "hostname", "DEMO_HOME", "dependencies"):
        assert what in err
    assert "make-squashfs" not in err
    assert "conda: guessed" in err
    assert "'', which is not absolute" in err


def test_make_squashfs_is_there_with_the_users_software(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that brings the command, and leaves the bind to its user."""
    text = (INPUTS / "easybuild" / "Demo-1.2.3-rocm-6.0-test.eb").read_text()
    (here / "Demo.eb").write_text(text.replace(", '/flash' )", " )"))
    assert run(["import", str(here / "Demo.eb")]) == 0
    made = read(here / capsys.readouterr().out.strip())
    assert made.user_software
    plan = make_plan(made, Configuration(here / "config").site().site, Choices("Demo", "copy"))
    assert {"bin/make-squashfs", "bin/unmake-squashfs"} <= {file.path for file in scripts(plan, 1)}


EASYBUILD = """
easyblock = 'MakeCp'
name = 'Tool'
version = '1.0'
versionsuffix = '-x'
sources = [{{'filename': 'tool-1.0.sif'}}]
checksums = ['{digest}']
modextravars = {variables}
"""


def import_variables(here: Path, variables: dict[str, str]) -> Easyconfig:
    (here / "Tool.eb").write_text(EASYBUILD.format(digest="0" * 64, variables=variables))
    assert run(["import", "--force", str(here / "Tool.eb")]) == 0
    return read(here / "Tool-1.0-x.yaml")


def test_with_conda_says_the_environment(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for prefix in ("", "SINGULARITYENV_"):
        made = import_variables(here, {f"{prefix}WITH_CONDA": "source /opt/miniconda3/bin/activate pytorch"})
        assert made.conda is not None
        assert (made.conda.prefix, made.conda.env, made.activate) == ("/opt/miniconda3", "pytorch", None)
    assert "WITH_CONDA" not in capsys.readouterr().err
    assert import_variables(here, {"WITH_CONDA": ". /opt/venv/bin/activate"}).activate == ". /opt/venv/bin/activate"
    assert "WITH_CONDA, unchanged; if it activates conda or a venv, prefer" in capsys.readouterr().err
    assert import_variables(here, {"WITH_CONDA": "true"}).activate is None


@pytest.mark.parametrize(
    ("variables", "accelerator"),
    [({"SINGULARITY_NV": "1"}, "cuda"), ({"APPTAINER_ROCM": "true"}, "rocm"), ({"SINGULARITY_NV": "0"}, None)],
)
def test_the_runtimes_flags_say_whose_gpus(
    here: Path, capsys: pytest.CaptureFixture[str], variables: dict[str, str], accelerator: str | None
) -> None:
    made = import_variables(here, variables)
    assert made.accelerator == (accelerator or "none")
    assert ("does not name just one accelerator" in capsys.readouterr().err) == (accelerator is None)


def test_what_a_runtime_would_evaluate_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variables = {
        "SINGULARITYENV_LD_LIBRARY_PATH": "/x:$LD_LIBRARY_PATH",
        "SINGULARITYENV_PREPEND_PATH": "/a:/b/$USER",
        "SINGULARITYENV_A": "b",
        "SINGULARITY_BINDPATH": "/a:/,/b",
    }
    made = import_variables(here, variables)
    assert dict(made.env).get("A") == "b"
    assert "LD_LIBRARY_PATH" not in dict(made.env)
    assert made.path == ("/runscripts", "/a")
    assert [bind.target for bind in made.binds] == ["/b"]
    error = capsys.readouterr().err
    assert "variable LD_LIBRARY_PATH: '/x:$LD_LIBRARY_PATH' is evaluated inside, and is not imported" in error
    assert "'/b/$USER', which is not absolute, or needs a shell" in error
    assert "the bind path '/a:/' is not imported" in error


def test_a_container_yaml(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(INPUTS / "shpc" / "samtools" / "container.yaml"), "--site", "generic-cuda"]) == 0
    out, err = capsys.readouterr()
    made = read(here / out.strip())
    assert (str(made.module), made.homepage) == ("samtools/1.20", "https://example.org/samtools")
    assert made.required_image.sources == (f"docker://quay.io/example/samtools:1.20@{DIGEST}",)
    assert made.wrappers == ("samtools", "bgzip", "ls", "serve")
    assert dict(made.wrapper_commands) == {
        "samtools": "/usr/local/bin/samtools",
        "ls": "/bin/ls",
        "serve": "sh -c 'samtools serve --port=$(shuf -i 2000-3000 -n 1) \"$@\"' serve",
    }
    assert dict(made.env)["DISPLAY"] == ""
    assert "WHO" not in dict(made.env)
    assert made.path == ("/runscripts", "/opt/tool/bin")
    text = (here / out.strip()).read_text()
    for what in ("filter", "features.gpu", "features.home", "features.x11", "env.WHO", "'bad name'", "tags: 1.10"):
        assert what in err
        assert what in text
    assert "alias serve: its command line needs a shell" in err
    assert "wrappers: ls will hide the host's own" in err


def test_a_modulefile(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(INPUTS / "modules" / "seqtool" / "1.4.lua")]) == 0
    out, err = capsys.readouterr()
    made = read(here / out.strip())
    assert (str(made.module), made.homepage) == ("seqtool/1.4", "https://example.org/seqtool")
    assert made.description == "Looks at sequences."
    assert (made.docurls, made.whatis) == (("Manual: https://example.org/manual",), ("Category: biology",))
    assert made.required_image.sources == ("seqtool.sif", "docker://registry.example/bio/seqtool:1.4")
    assert (made.accelerator, made.verb) == ("none", "run")
    assert made.wrappers == ("seqtool", "seq-view", "ls", "seq-sort")
    assert made.wrapper_commands == (("seq-sort", "seqtool sort --fast"),)
    assert [(bind.source, bind.target) for bind in made.binds] == [
        ("/opt/data", "/opt/data"),
        ("/scratch/db", "/scratch/db"),
    ]
    assert (made.conflict, made.family) == (("othertool",), "sequences")
    assert dict(made.host_env) == {"SEQ_LEVEL": "2"}
    assert dict(made.env)["SEQ_DB"] == "/opt/data/db"
    assert made.path == ("/runscripts", "/opt/seq/bin")
    for what in ("seq-copy", "LAUNCH_AGENT", "prepend_path PATH", "$HOME/.seq", "the site's runtime is used", "a loop"):
        assert what in err


def test_a_directory_gives_what_it_can_and_says_why_not(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "--json", str(INPUTS)]) == 5
    out, err = capsys.readouterr()
    results = {str(Path(one["source"]).relative_to(INPUTS)): one for one in json.loads(out)}
    refused = {source: one["error"] for source, one in results.items() if "error" in one}
    assert set(refused) == {
        "easybuild/hidden.eb",
        "easybuild/rebuilt.eb",
        "modules/noimage/1.0.lua",
        "shpc/broken/container.yaml",
    }
    assert "line 4: the call of os.popen('id').read is not evaluated" in refused["easybuild/hidden.eb"]
    assert "image.build" in refused["easybuild/rebuilt.eb"]
    assert "unsupported status code 401" in refused["shpc/broken/container.yaml"]
    for source, problem in refused.items():
        assert f"{INPUTS / source}: {problem}" in err
    assert {Path(one["path"]).name for one in results.values() if "path" in one} == {p.name for p in here.iterdir()}
    # the second of one name and version is told apart by its publisher
    assert results["shpc/tools/options/container.yaml"]["module"] == "samtools/1.20-example"
    assert run(["check", *map(str, here.iterdir())]) == 0


def test_options_of_an_alias_and_overrides(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(INPUTS / "shpc" / "tools")]) == 0
    err = capsys.readouterr().err
    made = read(here / "samtools-1.20.yaml")
    assert made.wrapper_commands == (("samtools", "samtools --threads 4"),)
    assert [(bind.source, bind.options, bind.optional) for bind in made.binds] == [("/data", ("ro",), True)]
    for what in (
        "docker_options",
        "--contain",
        "alias open",
        "singularity_scripts",
        "docker_scripts",
        "test is a script",
    ):
        assert what in err
    assert read(here / "foam-v2.yaml").wrappers == ("blockMesh",)
    assert read(here / "foam-v2.yaml").accelerator == "cuda"


def test_a_sif_beside_it_and_a_release(here: Path) -> None:
    assert run(["import", str(INPUTS / "shpc" / "local"), str(INPUTS / "shpc" / "release")]) == 0
    made = read(here / "tool-1.0.yaml")
    assert made.required_image.sources == (str(here / f"tool-1.0-{DIGEST}.sif"),)
    release = "https://github.com/example/deploy/releases/download/0.0.12/example-deploy.salad.sif"
    assert read(here / "deploy-salad.yaml").required_image.sources == (release,)


def test_every_result_loads_and_unloads(here: Path, module_tool: ModuleTool, shared_tmp: Path) -> None:
    assert run(["import", str(INPUTS), "-o", str(here)]) == 5
    configuration = Configuration(here.parent / "config")
    site = configuration.site(site="generic", prefix=str(shared_tmp / "prefix"), module_syntax=module_tool.syntax).site
    for path in sorted(here.iterdir()):
        made = configuration.load(path).easyconfig
        published = publish(make_plan(made, site, Choices(path.stem, site.link)))
        done = module_tool.session(
            ("true", f"module load {made.module}", f"module unload {made.module}"), published.modules
        )
        assert done[1].stderr == "", done[1]
        assert done[1].environment["SIF"] == str(published.image), done[1]
        assert "SIF" not in done[2].environment


def test_nothing_is_replaced_unless_forced(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(INPUTS / "shpc" / "samtools" / "container.yaml")
    (here / "samtools-1.20.yaml").write_text("mine")
    before = disk_state(here)
    assert run(["import", source]) == 2
    assert "samtools-1.20.yaml exists already and was not changed; use --force to replace it" in capsys.readouterr().err
    assert disk_state(here) == before
    assert run(["import", "--force", source]) == 0
    assert read(here / "samtools-1.20.yaml").name == "samtools"


def test_a_link_that_leads_to_nothing_is_there_too(here: Path) -> None:
    (here / "samtools-1.20.yaml").symlink_to("not-there.yaml")
    before = disk_state(here)
    assert run(["import", str(INPUTS / "shpc" / "samtools" / "container.yaml")]) == 2
    assert disk_state(here) == before


@pytest.mark.parametrize("there", ["directory", "file"])
def test_a_file_that_cannot_be_put_in_place_leaves_nothing(here: Path, there: str) -> None:
    """A directory of its name; and a file that nothing can replace."""
    source = str(INPUTS / "shpc" / "samtools" / "container.yaml")
    target = here / "samtools-1.20.yaml"
    if there == "directory":
        target.mkdir()
        (target / "mine").write_text("mine")
        before = disk_state(here)
        assert run(["import", "--force", source]) == 10
    else:
        target.write_text("mine")
        before = disk_state(here)
        strace = ("strace", "-f", "-qqq", "-o", "/dev/null", "-e", "inject=rename,?renameat,?renameat2:error=EIO")
        assert call((*strace, *SIFMOD, "import", "--force", source), env=os.environ, cwd=here).code == 10
    assert disk_state(here) == before


def test_what_cannot_be_imported_at_all(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").mkdir()
    (here / "x.txt").write_text("x")
    for argument, message, code in (
        ("empty", "no .eb, no container.yaml and no .lua file in empty", 2),
        ("missing.eb", "no such file: missing.eb", 4),
        ("x.txt", "x.txt: expected an EasyBuild .eb", 2),
    ):
        assert run(["import", argument]) == code
        assert message in capsys.readouterr().err
    for options, message in (
        (("-o", "x.txt"), "x.txt is not a directory"),
        (("-o", "new", "--module-tree", "no"), "there is no directory no"),
    ):
        assert run(["import", str(INPUTS), *options]) == 2
        assert message in capsys.readouterr().err
    assert run(["import", str(INPUTS / "modules" / "noimage"), "-o", "new"]) == 5
    assert sorted(os.listdir(here)) == ["empty", "x.txt"]


def test_two_trees_with_modules_of_the_same_names(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is the same is imported once and said once; another module of a name is refused; a name is kept."""
    said = 'whatis("Name: GATK") set_alias("gatk", "singularity exec {}.sif gatk") conflict("other")\n'
    for tree, image in (("a", "x"), ("b", "x"), ("c", "x"), ("d", "y")):
        for name in ("gatk4/4.2.0", "other/1"):
            path = here / tree / f"{name}.lua"
            path.parent.mkdir(parents=True)
            path.write_text(said.format(image if name == "gatk4/4.2.0" else "z"))
    assert run(["import", "--json", *"abcd", "-o", "new/place"]) == 5
    out, err = capsys.readouterr()
    made = {one["source"]: one for one in json.loads(out)}
    assert sorted(os.listdir(here / "new" / "place")) == ["gatk4-4.2.0.yaml", "other-1.yaml"]
    assert err.count("same") == 1
    assert "5 files that give the same easyconfig as another: imported once" in err
    assert Path(made["c/gatk4/4.2.0.lua"]["path"]) == Path(made["a/gatk4/4.2.0.lua"]["path"])
    assert made["c/gatk4/4.2.0.lua"]["notes"] == ["the same as a/gatk4/4.2.0.lua, imported once"]
    another = "a/gatk4/4.2.0.lua gives a different module gatk4/4.2.0: import each into its own directory"
    assert f"d/gatk4/4.2.0.lua: {another}" in err
    assert read(here / "new" / "place" / "gatk4-4.2.0.yaml").conflict == ("other",)
    assert run(["import", "a/gatk4", "--name-from", "whatis"]) == 0
    assert capsys.readouterr().out == "GATK-4.2.0.yaml\n"
    assert run(["import", "a/gatk4", "--module-tree", "a"]) == 0
    assert str(read(here / "gatk4-4.2.0.yaml").module) == "gatk4/4.2.0"


def test_the_same_file_gives_the_same_text(here: Path) -> None:
    source = str(INPUTS / "modules" / "seqtool" / "1.4.lua")
    assert run(["import", source]) == 0
    first = (here / "seqtool-1.4.yaml").read_bytes()
    assert run(["import", "--force", source]) == 0
    assert (here / "seqtool-1.4.yaml").read_bytes() == first


def test_what_repeats_a_file_that_was_not_written_was_not_either(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for tree in "abc":
        path = here / tree / "tool" / "1.lua"
        path.parent.mkdir(parents=True)
        path.write_text('set_alias("tool", "singularity exec x.sif tool")')
    (here / "tool-1.yaml").write_text("mine")
    before = disk_state(here)
    assert run(["import", "--json", *"abc"]) == 2
    out, err = capsys.readouterr()
    first, *others = json.loads(out)
    assert disk_state(here) == before
    for number, one in enumerate(others):
        assert one == {**first, "source": f"{'bc'[number]}/tool/1.lua", "notes": ["the same as a/tool/1.lua"]}
    assert err.count("exists already") == 1
    assert "2 files that give the same easyconfig as one that was not written: not imported either" in err
    assert "imported once" not in err


def test_what_repeats_the_second_of_a_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, publisher in (("a", "one"), ("b", "two"), ("c", "two"), ("d", "one")):
        path = here / place / "container.yaml"
        path.parent.mkdir()
        path.write_text(f"docker: quay.io/{publisher}/tool\nlatest: {{'1.0': {DIGEST}}}\naliases: {{tool: tool}}\n")
    assert run(["import", "--json", *"abcd"]) == 0
    made = [(one["module"], one["notes"], Path(one["path"]).name) for one in json.loads(capsys.readouterr().out)]
    assert made[1][::2] == ("tool/1.0-two", "tool-1.0-two.yaml")
    assert made[2] == ("tool/1.0-two", ["the same as b/container.yaml, imported once"], "tool-1.0-two.yaml")
    assert made[3] == ("tool/1.0", ["the same as a/container.yaml, imported once"], "tool-1.0.yaml")


ODD = {
    "\t": "the character '\\t' is not allowed here",
    "\x1b[31m": "the character '\\x1b' is not allowed here",
    "\x00": "the character '\\x00' is not allowed here",
    "\x9b": "the character '\\x9b' is not allowed here",
    "\u2028": "the character '\\u2028' is not allowed here",
    ":~/x": "write the full path, because",
}


def test_a_login_is_left_out_of_the_new_file_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the text that a note quotes would end within it."""
    source = here / "tool" / "1.0.lua"
    source.parent.mkdir()
    login = "https://me:hunter2-" + "x" * 90 + "@x.org"
    lines = ['set_alias("tool", "singularity exec x.sif tool")', f'whatis("Description: see {login}")']
    source.write_text(
        "\n".join([*lines, f'whatis("URL: {login}")', f'help("see {login}")', f'set_alias("b", "{login}")'])
    )
    assert run(["import", "--json", "tool"]) == 0
    out, err = capsys.readouterr()
    assert "a login cannot be used here" in err
    assert "hunter2" not in f"{out}{err}{(here / 'tool-1.0.yaml').read_text()}"


def test_what_a_check_refuses_is_left_out_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Odd values: each ends where it stands, with its reason; names and images cannot be left out."""
    lines = ['set_alias("tool", "singularity exec x.sif tool")', 'setenv("GOOD", "x")', f'setenv("{"L" * 2000}", "x")']
    for number, odd in enumerate(ODD):
        lines += [f'{name}{number}", "{odd}")' for name in ('setenv("A', 'pushenv("APPTAINERENV_B', 'append_path("C')]
    for number, odd in enumerate([*ODD][:-1]):
        lines += [f'prepend_path("APPTAINERENV_PREPEND_PATH", "/d{number}{odd}")', f'whatis("E{number}: e{odd}e")']
        lines += [f'set_alias("f{number}", "singularity exec x.sif f\'{odd}\'")']
    lines += ['setenv("WITH_CONDA", "source /c/bin/activate ' + "e" * 101 + '")', 'help("\x1b[31mred")']
    lines += ['setenv("APPTAINERENV_HOME", "/x") conflict("a b", "c", capture("x")) family("my-tools")']
    source = here / "tool" / "1.0.lua"
    source.parent.mkdir()
    source.write_text("\n".join(lines))
    assert run(["import", "--json", "tool"]) == 0
    out, err = capsys.readouterr()
    ((notes,),) = ([one["notes"]] for one in json.loads(out))
    made = read(here / "tool-1.0.yaml")
    assert (made.host_env, made.default_env, made.description) == ((("GOOD", "x"),), (), "[31mred")
    assert (made.path, made.wrappers, made.whatis) == (("/runscripts",), ("tool",), ("E0: e e", "E4: e e"))
    for number, (odd, reason) in enumerate(ODD.items()):
        for item in (f"host_env: 'A{number}=", f"env: 'B{number}=", f"default_env: 'C{number}="):
            (note,) = (note for note in notes if note.startswith(item))
            assert f"{odd!r}"[1:] in note
            assert reason in note
    assert sum(" was left out: " in note for note in notes) == 3 * 6 + 3 * 5 - 2 + 5
    assert (made.conflict, made.family) == (("c",), None)
    assert "conflict: '?' was left out: '?' cannot be used: use a module's name" in err
    assert "HOME belongs to the runtime or its shell and cannot be set from outside the container" in err
    assert "\x1b" not in err + (here / "tool-1.0.yaml").read_text()
    assert run(["check", "tool-1.0.yaml"]) == 0
