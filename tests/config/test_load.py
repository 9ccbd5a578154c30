"""An easyconfig from its files: presets, extends, variants, sources, the command line, and every problem at once."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sifmod.config.build import Build
from sifmod.config.easyconfig import EasyconfigFile
from sifmod.config.input import HostFacts
from sifmod.config.load_easyconfig import LoadedEasyconfig, all_variants, load_easyconfig
from sifmod.errors import ConfigError, OptionError, VariantError, ViewError
from support.config import Configuration, lines, write

BASE = """
    name: App
    version: '1.0'
    image: {sources: [app.sif]}
    """


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(tmp_path)


def easyconfig(configuration: Configuration, text: str, name: str = "App-1.0.yaml") -> Path:
    return write(configuration.root / "ec" / name, text)


def loaded(configuration: Configuration, text: str, variant: str | None = None) -> LoadedEasyconfig:
    return configuration.load(easyconfig(configuration, text), variant)


def refused(configuration: Configuration, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(configuration, text)
    assert caught.value.exit_code == 5
    return lines(caught.value)


def test_the_least_that_an_easyconfig_says(configuration: Configuration) -> None:
    found = loaded(configuration, BASE)
    made = found.easyconfig
    assert str(made.module) == "App/1.0"
    assert (made.required_image.filename, made.required_image.sources, made.required_image.arch) == (
        "App-1.0.sif",
        ("app.sif",),
        "amd64",
    )
    assert made.accelerator == "none"
    assert dict(made.env) == {"PYTHONNOUSERSITE": "1", "PIP_USER": "0", "PYTHONPATH": "", "LD_PRELOAD": ""}
    assert made.path == ("/runscripts",)
    assert made.runscripts[:3] == ("conda-python-simple", "conda-python-distributed", "get-master")
    assert made.wrappers == ("start-shell",)
    assert (found.variant, found.notes) == (None, ())


def test_defaults_can_be_removed_and_replaced(configuration: Configuration) -> None:
    more = "env: {PYTHONPATH: null, PIP_USER: 1}\n    wrappers: [python]\n    path: []\n"
    made = loaded(configuration, BASE + more).easyconfig
    assert dict(made.env) == {"PYTHONNOUSERSITE": "1", "PIP_USER": "1", "LD_PRELOAD": ""}
    assert (made.wrappers, made.path) == (("python",), ())


def test_what_is_missing_is_told_at_the_beginning_of_the_file(configuration: Configuration) -> None:
    assert refused(configuration, "description: x") == [
        "App-1.0.yaml:1:1: image: expected sources (a list), or build",
        "App-1.0.yaml:1:1: name: is missing",
        "App-1.0.yaml:1:1: version: is missing",
    ]
    assert refused(configuration, "name: A\nversion: '1'\nimage:\n  filename: a.sif\n") == [
        "App-1.0.yaml:4:3: image: expected sources (a list), or build"
    ]


def test_every_problem_is_told_at_once_with_its_place(configuration: Configuration) -> None:
    easyconfig(configuration, "nam: x\nversion: 1.0\nversion: 2.0\n", "Base.yaml")
    text = """
        extends: Base.yaml
        preset: absent
        version: 2.20
        variants:
          rocm: {imaeg: {}}
          cuda: {preset: absent}
        """
    found = refused(configuration, text)
    assert found[:2] == [
        "App-1.0.yaml:2:9: preset: there is no preset 'absent'; searched in "
        + str(configuration.site().site.robot_paths[0] / "presets"),
        "App-1.0.yaml:3:10: version: expected text, got the number 2.20; write version: '2.20'",
    ]
    assert found[2] == "App-1.0.yaml:5:10: variants.rocm.imaeg: unknown key; did you mean image?"
    assert found[3].startswith("App-1.0.yaml:6:18: variants.cuda.preset: there is no preset 'absent'")
    assert found[4:] == [
        "Base.yaml:1:1: nam: unknown key; did you mean name?",
        "Base.yaml:2:10: version: expected text, got the number 1.0; write version: '1.0'",
        "Base.yaml:3:1: version: duplicate key, first given in line 2",
    ]


def test_layers_win_in_their_order(configuration: Configuration) -> None:
    """docs/design.md, section 1: defaults < preset < extends < the file < its variant < command line."""
    robot = configuration.root / "robot"
    write(robot / "presets/p.yaml", "env: {A: preset, B: preset, C: preset, D: preset, E: preset}\nlicense: preset")
    write(robot / "presets/q.yaml", "env: {A: variants-preset}\nmoduleclass: q")
    base = "env: {B: base, C: base, D: base}\nvariants: {none: {env: {C: base-variant}}}"
    easyconfig(configuration, base, "Base.yaml")
    path = easyconfig(
        configuration,
        BASE
        + """
    preset: p
    extends: Base.yaml
    env: {C: file, D: file}
    variants:
      none: {preset: q, env: {D: variant}, homepage: variant}
    """,
    )
    configuration.variables["SIFMOD_ROBOT_PATHS"] = str(robot)
    found = configuration.load(path, overrides={"homepage": "command line"})
    env = dict(found.easyconfig.env)
    assert (env["A"], env["B"], env["C"], env["D"], env["E"]) == (
        *("variants-preset", "base", "base-variant", "variant", "preset"),
    )
    assert (found.easyconfig.homepage, found.easyconfig.license, found.easyconfig.moduleclass) == (
        *("command line", "preset", "q"),
    )
    assert env["PIP_USER"] == "0"
    told = {key: origin for key, _, origin in found.origins}
    assert told["env.A"] == f"{robot}/presets/q.yaml:1"
    assert told["env.B"] == f"{path.parent}/Base.yaml:1"
    assert told["env.D"] == f"{path}:9"
    assert told["env.PIP_USER"] == "default"
    assert told["homepage"] == "the command line"
    assert told["image.arch"] == "site generic"
    assert told["accelerator"] == "variant none"
    assert {Path(entry.path).name for entry in found.inputs} == {"p.yaml", "q.yaml", "Base.yaml", "App-1.0.yaml"}
    assert HostFacts(configuration.environ).unchanged(found.inputs)
    write(robot / "presets/q.yaml", "env: {A: other}")
    assert not HostFacts(configuration.environ).unchanged(found.inputs)


def test_lists_are_appended_to_across_files(configuration: Configuration) -> None:
    easyconfig(configuration, BASE + "binds: [/a]\n    variants: {none: {binds+: [/c]}}", "Base.yaml")
    made = loaded(configuration, "extends: Base.yaml\nbinds+: [/b]\nvariants: {none: {binds+: [/d]}}").easyconfig
    assert [bind.source for bind in made.binds] == ["/a", "/b", "/c", "/d"]


def test_extends_is_looked_up_beside_the_file_then_on_the_path(configuration: Configuration) -> None:
    robot = configuration.root / "robot"
    write(robot / "Base/Base-1.yaml", BASE + "description: robot")
    configuration.variables["SIFMOD_ROBOT_PATHS"] = str(robot)
    path = easyconfig(configuration, "extends: Base-1.yaml")
    found = configuration.load(path)
    assert found.easyconfig.description == "robot"
    easyconfig(configuration, BASE + "description: beside", "Base-1.yaml")
    assert not HostFacts(configuration.environ).unchanged(found.inputs)
    assert configuration.load(path).easyconfig.description == "beside"


@pytest.mark.parametrize("other", ["App-1.0.yaml", "B.yaml", "./B.yaml", "../ec/B.yaml"])
def test_an_easyconfig_that_extends_itself_is_refused(configuration: Configuration, other: str) -> None:
    easyconfig(configuration, "extends: App-1.0.yaml", "B.yaml")
    (found,) = refused(configuration, f"extends: {other}")
    circle = "App-1.0.yaml → App-1.0.yaml" if other == "App-1.0.yaml" else "App-1.0.yaml → B.yaml → App-1.0.yaml"
    assert found.endswith(f"extends: an easyconfig cannot extend itself: {circle}")


def test_what_extends_names_must_exist(configuration: Configuration) -> None:
    assert refused(configuration, "extends: Absent.yaml") == [
        "App-1.0.yaml:1:10: extends: there is no 'Absent.yaml', neither beside App-1.0.yaml nor in `robot_paths`"
    ]
    (found,) = refused(configuration, "extends: /absent/x.yaml")
    assert found.startswith("App-1.0.yaml:1:10: extends: there is no '/absent/x.yaml', neither beside")


VARIANTS = (
    BASE
    + """
    variants:
      rocm: {versionsuffix: -rocm}
      cuda: {versionsuffix: -cuda, image: {arch: arm64}}
      cuda-amd: {versionsuffix: -cuda-amd, accelerator: cuda, image: {arch: amd64}}
      cuda-old: {versionsuffix: -cuda-old, accelerator: cuda}
      cpu: {versionsuffix: -cpu}
    """
)


@pytest.mark.parametrize(
    ("accelerator", "arch", "variant"),
    [
        ("rocm", "amd64", "rocm"),
        ("rocm", "arm64", "rocm"),
        ("cuda", "arm64", "cuda"),
        ("cuda", "amd64", "cuda-amd"),
        ("none", "amd64", "cpu"),
    ],
)
def test_the_first_variant_that_fits_the_site_is_taken(
    configuration: Configuration, accelerator: str, arch: str, variant: str
) -> None:
    path = easyconfig(configuration, VARIANTS)
    site = configuration.site(accelerator=accelerator, arch=arch)
    found = load_easyconfig(path, site, None, {}, configuration.environ)
    assert (found.variant, found.easyconfig.accelerator) == (variant, accelerator)
    assert found.easyconfig.module.version == f"1.0-{variant}"
    assert found.easyconfig.required_image.filename == f"App-1.0-{variant}.sif"


def test_a_variant_can_be_named_whether_it_fits_or_not(configuration: Configuration) -> None:
    assert loaded(configuration, VARIANTS, "rocm").easyconfig.accelerator == "rocm"


def test_when_no_variant_fits_each_is_listed_with_its_command(configuration: Configuration) -> None:
    path = easyconfig(configuration, BASE + "variants: {rocm: {}, cuda: {image: {arch: arm64}}}")
    with pytest.raises(VariantError) as caught:
        configuration.load(path)
    assert caught.value.message.splitlines() == [
        "App-1.0.yaml has no variant for this machine: site generic has accelerator none and architecture amd64",
        "its variants are",
        f"  rocm (accelerator rocm, amd64): sifmod install {path} --variant rocm",
        f"  cuda (accelerator cuda, arm64): sifmod install {path} --variant cuda",
    ]
    assert "--site" in caught.value.hint
    configuration.variables["SIFMOD_ROBOT_PATHS"] = str(path.parent)
    with pytest.raises(VariantError, match=r"sifmod install App-1\.0\.yaml --variant rocm"):
        configuration.load(path)


def test_a_variant_that_is_not_there(configuration: Configuration) -> None:
    with pytest.raises(VariantError) as caught:
        loaded(configuration, VARIANTS, "rcom")
    assert caught.value.message.splitlines()[:2] == [
        "App-1.0.yaml has no variant 'rcom'; did you mean rocm?",
        "its variants are",
    ]
    with pytest.raises(VariantError, match=r"App-1\.0\.yaml has no variants, so there is no variant 'rocm'"):
        loaded(configuration, BASE, "rocm")


def test_variants_are_added_changed_and_removed_by_the_file_that_extends(configuration: Configuration) -> None:
    easyconfig(configuration, VARIANTS, "Base.yaml")
    changes = "variants: {rocm: null, cuda-old: null, cuda: {license: x}, new: {}}"
    path = easyconfig(configuration, f"extends: Base.yaml\n{changes}")
    found = {each.variant: each.easyconfig for each in all_variants(path, configuration.site(), configuration.environ)}
    assert list(found) == ["cuda", "cuda-amd", "cpu", "new"]
    assert (found["cuda"].versionsuffix, found["cuda"].license) == ("-cuda", "x")
    easyconfig(configuration, "extends: Base.yaml\nvariants: null")
    assert configuration.load(path).variant is None


def test_all_variants_tells_the_problems_of_each(configuration: Configuration) -> None:
    variants = "{a: {versionsuffix: -x}, b: {versionsuffix: -x}, c: {activate: x, venv: /v}}"
    path = easyconfig(configuration, f"{BASE}variants: {variants}")
    with pytest.raises(ConfigError) as caught:
        all_variants(path, configuration.site(), configuration.environ)
    assert lines(caught.value) == [
        "App-1.0.yaml:1:1: give activate, or conda and venv, not both",
        "App-1.0.yaml:4:36: variants.b: gives the same module as variant a: App/1.0-x",
    ]


def test_without_variants_there_is_one(configuration: Configuration) -> None:
    (found,) = all_variants(easyconfig(configuration, BASE), configuration.site(), configuration.environ)
    assert found.variant is None


def test_sources_are_made_absolute_by_the_file_that_says_them(configuration: Configuration) -> None:
    sources = [
        *("plain.sif", "dir/x.sif", "./x.sif", "../x.sif", "/abs/x.sif", "file:x.sif", "file:///abs/x.sif"),
        *("oci:layout:tag", "oci:/abs/layout", "oci-archive:a.tar", "docker-archive:../a.tar", "~/x.sif"),
        *("https://host/x.sif", "docker://repo/x:1", "oras://host/x:1", "library://a/b/c:1", "unknown:x"),
    ]
    easyconfig(configuration, f"name: App\nversion: '1'\nimage: {{sources: {sources!r}}}", "deep/er/Base.yaml")
    made = loaded(configuration, "extends: deep/er/Base.yaml").easyconfig
    here = configuration.root / "ec/deep"
    assert made.required_image.sources == (
        *("plain.sif", f"{here}/er/dir/x.sif", f"{here}/er/x.sif", f"{here}/x.sif", "/abs/x.sif"),
        *(f"file:{here}/er/x.sif", "file:///abs/x.sif"),
        *(f"oci:{here}/er/layout:tag", "oci:/abs/layout", f"oci-archive:{here}/er/a.tar"),
        *(f"docker-archive:{here}/er/../a.tar", f"{configuration.root}/home/x.sif"),
        *("https://host/x.sif", "docker://repo/x:1", "oras://host/x:1", "library://a/b/c:1", "unknown:x"),
    )


def test_a_definition_file_is_an_input(configuration: Configuration) -> None:
    definition = write(configuration.root / "ec/app.def", "Bootstrap: scratch")
    found = loaded(configuration, "name: App\nversion: '1'\nimage: {build: app.def}")
    assert found.easyconfig.required_image.build == Build(definition=str(definition))
    assert HostFacts(configuration.environ).unchanged(found.inputs)
    definition.write_text("Bootstrap: docker")
    assert not HostFacts(configuration.environ).unchanged(found.inputs)


def skips(source: str, variable: str) -> str:
    how = f"`export {variable}=…` sets it"
    return f"the source {source} cannot be used, as the variable {variable} is empty or not set: {how}"


def test_a_source_with_a_variable_that_is_not_set_is_left_out_and_told(configuration: Configuration) -> None:
    text = "name: App\nversion: '1'\nimage: {sources: ['oci:${LAYOUT}', 'docker://x/y']}"
    found = loaded(configuration, text)
    assert found.easyconfig.required_image.sources == ("docker://x/y",)
    assert found.notes == (skips("oci:${LAYOUT}", "LAYOUT"),)
    configuration.variables["LAYOUT"] = "/l"
    assert not HostFacts(configuration.environ).unchanged(found.inputs)
    found = loaded(configuration, text)
    assert (found.easyconfig.required_image.sources, found.notes) == (("oci:/l", "docker://x/y"), ())


def test_when_every_source_needs_a_variable_that_is_not_set_that_is_a_problem(configuration: Configuration) -> None:
    assert refused(configuration, "name: App\nversion: '1'\nimage: {sources: ['${A}/x.sif']}") == [
        f"App-1.0.yaml:3:18: image.sources: {skips('${A}/x.sif', 'A')}"
    ]


SECRET = "would be stored where others read it; use ~/.netrc or the registry's login"


@pytest.mark.parametrize("value", ["s3cret", None])
@pytest.mark.parametrize(
    "source",
    [
        "https://x/${REG_TOKEN}/i.sif",
        "https://x/${PART:-?}/${REG_TOKEN:-none}.sif?a=b",
        "https://${REG_TOKEN}.x/i.sif?a=b",
        "HTTPS://x/${REG_TOKEN}",
        " https://x/${REG_TOKEN}",
        "docker://x/${REG_TOKEN}/y:1",
        "oras:x/y:${REG_TOKEN}",
        "${PLACE}/${REG_TOKEN}",
    ],
)
def test_a_secret_in_the_host_or_path_of_a_source_is_refused(
    configuration: Configuration, source: str, value: str | None
) -> None:
    configuration.variables.update({"PLACE": "https://x", "PART": "c"}, **({"REG_TOKEN": value} if value else {}))
    message = f"the value of the variable REG_TOKEN {SECRET}"
    text = f"name: App\nversion: '1'\nimage: {{sources: [a.sif, '{source}']}}"
    assert refused(configuration, text) == [f"App-1.0.yaml:3:26: image.sources[1]: {message}"]
    text = f"name: App\nversion: '1'\nimage: {{build: {{from: '{source}', pip: [a]}}}}"
    assert refused(configuration, text) == [f"App-1.0.yaml:3:23: image.build.from: {message}"]
    path = easyconfig(configuration, BASE)
    with pytest.raises(ConfigError, match=f"^the command line:.*REG_TOKEN {SECRET}"):
        configuration.load(path, overrides={"image.sources": (source,)})


@pytest.mark.parametrize(
    "source", ["https://x/i.sif?a=${REG_TOKEN}", "${URL}&sig=${SIG}", "/${MONKEY}/i.sif", "oci:/${KEYS}/x"]
)
def test_a_secrets_name_in_a_query_or_a_local_path_is_allowed(configuration: Configuration, source: str) -> None:
    configuration.variables.update({"URL": "https://x/i.sif?a=b", **dict.fromkeys(("REG_TOKEN", "SIG", "KEYS"), "v")})
    configuration.variables["MONKEY"] = "v"
    found = loaded(configuration, f"name: App\nversion: '1'\nimage: {{sources: ['{source}']}}")
    assert "v" in found.easyconfig.required_image.sources[0]


def test_a_variables_value_is_checked_like_any_text(configuration: Configuration) -> None:
    configuration.variables["A"] = "/a\nb"
    (found,) = refused(configuration, "name: App\nversion: '1'\nimage: {sources: ['${A}/x.sif']}")
    assert found.startswith("App-1.0.yaml:3:19: image.sources[0]: the character '\\n' is not allowed here")


def test_a_source_of_the_command_line_replaces_all_others(configuration: Configuration) -> None:
    path = easyconfig(configuration, "name: App\nversion: '1'\nimage: {build: app.def}")
    image = configuration.load(path, overrides={"image.sources": ("/data/x.sif",)}).easyconfig.required_image
    assert (image.sources, image.build) == (("/data/x.sif",), None)
    with pytest.raises(OptionError, match="the character"):
        configuration.load(path, overrides={"image.sources": ("a\nb",)})


def test_a_source_of_the_command_line_is_a_file_here_when_there_is_one(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(configuration.root)
    path = easyconfig(configuration, BASE)
    assert configuration.load(path, overrides={"image.sources": ("x.sif",)}).easyconfig.required_image.sources == (
        "x.sif",
    )
    (configuration.root / "x.sif").touch()
    here = configuration.load(
        path, overrides={"image.sources": ("x.sif", "d/y.sif", "oci:z")}
    ).easyconfig.required_image.sources
    assert here == (f"{configuration.root}/x.sif", f"{configuration.root}/d/y.sif", f"oci:{configuration.root}/z")


def test_files_that_cannot_be_read_are_told(configuration: Configuration, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        configuration.load(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        configuration.load(tmp_path / "absent.yaml")


# Keys that a model knows and text that means something, in trees of any shape.
OTHER_KEYS = ("sources", "filename", "arch", "binds+", "rocm", "source", "PATH", "x")
KEYS = st.sampled_from([*EasyconfigFile.model_fields, *OTHER_KEYS])
WORDS = st.sampled_from(
    [
        *("App", "1.0", "none", "cuda", "amd64", "a.sif", "/a", "/a:/b:ro", "lumi-g1", "App-1.0.yaml", "x/y", ""),
        *("docker://a", "${HOME}/x", "${UNSET}/x", "oci:x", "~/x", "python", "$(touch x)", "]==]", "a\nb", "\x00", "é"),
    ]
)
SCALARS = st.one_of(WORDS, st.text(max_size=8), st.none(), st.booleans(), st.integers(), st.floats(), st.dates())
TREES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
FILES = st.dictionaries(KEYS, TREES, max_size=6).map(
    lambda keys: {"name": "App", "version": "1", "image": {"sources": ["a"]}, **keys}
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=FILES)
def test_any_tree_gives_an_easyconfig_or_problems_with_places(configuration: Configuration, content: Any) -> None:
    path = easyconfig(configuration, yaml.safe_dump(content, allow_unicode=True))
    for load in (configuration.load, lambda path: all_variants(path, configuration.site(), configuration.environ)):
        try:
            load(path)
        except VariantError as error:
            assert "\n  " in error.message
        except ConfigError as error:
            assert error.problems
            assert all(problem.line >= 1 and problem.column >= 1 for problem in error.problems)
            assert all("\n" not in str(problem) for problem in error.problems)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(), st.text(alphabet="abc:- \n[]{}&*!'\"#|>?,<").map(lambda text: f"name: A\n{text}")))
def test_any_text_gives_an_easyconfig_or_problems(configuration: Configuration, text: str) -> None:
    path = configuration.root / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError) as caught:
        configuration.load(path)
    assert caught.value.problems


@pytest.mark.parametrize(
    ("text", "wrappers", "auto"),
    [
        ("wrappers: auto", (), True),
        ("wrappers: [python, auto]", ("python",), True),
        ("wrappers+: [auto]", ("start-shell",), True),
        ("wrappers: [python]", ("python",), False),
        ("wrappers: auto\n    variants: {cpu: {wrappers+: [python]}}", ("python",), True),
        ("wrappers: auto\n    variants: {cpu: {wrappers: [python]}}", ("python",), False),
    ],
)
def test_auto_stands_for_wrappers_that_are_found(
    configuration: Configuration, text: str, wrappers: tuple[str, ...], auto: bool
) -> None:
    made = loaded(configuration, f"{BASE}{text}\n").easyconfig
    assert (made.wrappers, made.wrappers_auto) == (wrappers, auto)


def test_a_default_of_a_variable(configuration: Configuration) -> None:
    text = BASE.replace("[app.sif]", "['/a/${PLACE:-none}/${OTHER:-}x.sif', '/b/${PLACE}.sif']")
    found = loaded(configuration, text)
    assert found.easyconfig.required_image.sources == ("/a/none/x.sif",)
    assert found.notes == (skips("/b/${PLACE}.sif", "PLACE"),)
    configuration.variables["PLACE"] = "here"
    assert loaded(configuration, text).easyconfig.required_image.sources == ("/a/here/x.sif", "/b/here.sif")
    assert {"$PLACE", "$OTHER"} <= {seen.path for seen in found.inputs}


def test_what_extends_finds_on_the_path_is_hidden_by_whatever_comes_before(configuration: Configuration) -> None:
    """Each place where a file would be found instead is looked at again by the next run."""
    robot = configuration.root / "robot"
    write(robot / "Base" / "Base-1.yml", BASE)
    configuration.variables["SIFMOD_ROBOT_PATHS"] = f"{configuration.root}/none:{robot}"
    found = configuration.load(easyconfig(configuration, "extends: Base-1"))
    names = ("Base-1.yaml", "Base-1.yml", "Base/Base-1.yaml", "Base/Base-1.yml")
    absent = [f"{configuration.root}/ec/Base-1", *(f"{configuration.root}/none/{name}" for name in names)]
    absent += [f"{robot}/{name}" for name in names[:3]]
    assert [read.path for read in found.inputs if read.sha256 is None] == absent


def test_a_preset_is_the_first_of_its_name(configuration: Configuration) -> None:
    for name in ("one", "two"):
        (configuration.root / name / "presets").mkdir(parents=True)
    write(configuration.root / "two" / "presets" / "p.yaml", "license: two")
    configuration.variables["SIFMOD_ROBOT_PATHS"] = f"{configuration.root}/one:{configuration.root}/two"
    path = easyconfig(configuration, f"{BASE}preset: p\n")
    found = configuration.load(path)
    assert found.easyconfig.license == "two"
    assert [read.path for read in found.inputs if read.sha256 is None] == [f"{configuration.root}/one/presets/p.yaml"]
    write(configuration.root / "one" / "presets" / "p.yaml", "license: one")
    assert configuration.load(path).easyconfig.license == "one"


def test_the_name_of_an_image_that_has_none(configuration: Configuration) -> None:
    made = loaded(configuration, f"{BASE}versionsuffix: -x\n").easyconfig
    assert made.required_image.filename == "App-1.0-x.sif"
    assert refused(configuration, "version: '1'\nimage: {sources: [a]}\n") == ["App-1.0.yaml:1:1: name: is missing"]


def test_a_problem_of_a_default_stands_at_the_beginning_and_each_is_told_once(configuration: Configuration) -> None:
    easyconfig(configuration, "nam: x\ndescription: x\n", "Base.yaml")
    text = "extends: Base.yaml\nvariants: {a: {preset: none}, b: {preset: none}}\n"
    found = refused(configuration, text)
    assert [line.partition(": ")[0] for line in found] == ["App-1.0.yaml:2:24", "App-1.0.yaml:2:43", "Base.yaml:1:1"]
    with pytest.raises(ConfigError) as caught:
        path = easyconfig(configuration, "name: A\nversion: '1'\nvariants: {a: {}, b: {versionsuffix: -b}}\n")
        all_variants(path, configuration.site(), configuration.environ)
    assert lines(caught.value) == ["App-1.0.yaml:1:1: image: expected sources (a list), or build"]


def test_what_is_no_text_among_the_sources_is_told(configuration: Configuration) -> None:
    text = "name: App\nversion: '1'\nimage: {sources: [a.sif, 3], build: [x]}\n"
    assert [line.partition(" ")[2] for line in refused(configuration, text)][:1] == [
        "image.sources[1]: expected text, got the number 3; write '3'"
    ]


def test_every_source_that_was_left_out_is_told(configuration: Configuration) -> None:
    text = "name: App\nversion: '1'\nimage: {sources: ['${A}/x', '${B}${C}/y']}\n"
    assert refused(configuration, text) == [
        f"App-1.0.yaml:3:18: image.sources: {skips('${A}/x', 'A')}; {skips('${B}${C}/y', 'B')}"
    ]


def test_a_view_has_modules_and_no_image(configuration: Configuration) -> None:
    text = "name: App\nversion: '1.0'\nmodules: [A/1, B, A/2, App]\nimage: {sources: [a.sif]}\nverb: run\nfamily: f g\n"
    without = "a view has no image of its own: remove this key, or `modules`"
    assert refused(configuration, text) == [
        "App-1.0.yaml:6:9: family: 'f g' cannot be used: use letters, digits and _, starting with a letter or digit"
    ]
    assert refused(configuration, text.replace("f g", "f")) == [
        "App-1.0.yaml:3:19: modules[2]: A/2 cannot be loaded together with A/1, which has the same name",
        "App-1.0.yaml:3:24: modules[3]: App cannot be loaded together with the view itself, which has the same name",
        f"App-1.0.yaml:4:1: image: {without}",
        f"App-1.0.yaml:5:1: verb: {without}",
    ]
    (found,) = refused(configuration, "name: App\nversion: '1.0'\nmodules: []\n")
    assert found.startswith("App-1.0.yaml:1:1: image: expected sources")
    with pytest.raises(ViewError, match=r"App/1\.0 is a view"):
        _ = loaded(configuration, "name: App\nversion: '1.0'\nmodules: [A]\n").easyconfig.required_image
