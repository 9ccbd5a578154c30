"""How an image is built, as an easyconfig says it: what is accepted, what it becomes, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.config.build import Build
from sifmod.errors import ConfigError
from sifmod.module.deciding import build_data
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.plan import BuildPlan, ImagePlan, Plan
from support.config import Configuration, lines, write

HEAD = "name: App\nversion: '1'\nimage:\n  build:\n"


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(tmp_path, {"SIFMOD_ROBOT_PATHS": str(tmp_path / "ec")})


def built(configuration: Configuration, text: str) -> Build:
    made = configuration.load(write(configuration.root / "ec/App-1.yaml", text)).easyconfig.required_image.build
    assert made is not None
    return made


def decided(configuration: Configuration, text: str) -> Plan:
    loaded = configuration.load(write(configuration.root / "ec/App-1.yaml", text))
    site = configuration.site().site
    return make_plan(loaded.easyconfig, site, Choices("x", "copy"), loaded.quirks, loaded.bases)


def planned(configuration: Configuration, text: str) -> ImagePlan:
    return decided(configuration, text).required_image


def refused(configuration: Configuration, text: str) -> list[str]:
    path = write(configuration.root / "ec/App-1.yaml", text)
    with pytest.raises(ConfigError) as caught:
        configuration.load(path)
    return [line.removeprefix("App-1.yaml:") for line in lines(caught.value)]


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("x.def", "definition"),
        ("dir/Singularity", "definition"),
        ("Dockerfile", "dockerfile"),
        ("dir/Containerfile", "dockerfile"),
        ("Dockerfile.rocm", "dockerfile"),
        ("dir/", "dockerfile"),
    ],
)
def test_a_text_is_a_definition_or_a_dockerfile(configuration: Configuration, text: str, way: str) -> None:
    here = configuration.root / "ec"
    made = built(configuration, f"name: App\nversion: '1'\nimage: {{build: {text}}}\n")
    assert made == Build.model_validate({way: f"{here}/{text}"})
    assert built(configuration, f"{HEAD}    {way}: {text}\n") == made


def test_a_plan_of_a_recipe(configuration: Configuration) -> None:
    here = configuration.root / "ec"
    write(here / "bert/a.py", "")
    text = f"""{HEAD}    from: ./base.sif
    pip: ['lightning==2.2.0', "numpy; python_version > '3.8'"]
    requirements: more.txt
    files: {{bert/: /opt/bert}}
    env: {{HF_HOME: /tmp/hf, N: 2}}
    labels: {{maintainer: me}}
protected: [torch]
"""
    plan = planned(configuration, text)
    base = ImagePlan("base-of-App.sif", (f"{here}/base.sif",), (), None, None, "amd64", "reference", False)
    assert plan.build == BuildPlan(
        base=base,
        pip=("lightning==2.2.0", "numpy; python_version > '3.8'"),
        requirements=f"{here}/more.txt",
        files=((f"{here}/bert/", "/opt/bert"),),
        env=(("HF_HOME", "/tmp/hf"), ("N", "2")),
        labels=(("maintainer", "me"),),
        protected=("torch",),
    )
    offline = replace(plan.build, base=replace(base, offline=True, link="copy"))
    assert build_data(offline) == build_data(plan.build) != build_data(replace(plan.build, pip=()))
    told = f"{here}/base.sif with lightning==2.2.0, numpy; python_version > '3.8', more.txt, bert"
    assert str(plan.build) == told


def test_the_base_can_be_another_easyconfig_and_that_one_built_too(configuration: Configuration) -> None:
    here, digest = configuration.root / "ec", "0" * 64
    base = f"name: Base\nversion: '1'\nimage: {{sources: [b.sif], sha256: '{digest}'}}\n"
    write(here / "Base/Base-1.yaml", base)
    write(here / "Middle-1.yaml", f"{HEAD}    from: Base-1\n    env: {{A: b}}\n")
    plan = planned(configuration, f"{HEAD}    from: ./Middle-1.yaml\n    pip: [six]\n")
    assert plan.build and plan.build.base and plan.build.base.build and plan.build.base.build.base
    middle, bottom = plan.build.base.build, plan.build.base.build.base
    assert (middle.env, plan.build.base.sources) == ((("A", "b"),), ())
    assert (bottom.filename, bottom.sources, bottom.sha256) == ("Base-1.sif", ("b.sif",), digest)
    inputs = {seen.path for seen in configuration.load(here / "App-1.yaml").inputs}
    assert {str(here / "Middle-1.yaml"), str(here / "Base/Base-1.yaml"), str(here / "Base-1.yaml")} <= inputs


def test_the_python_is_that_of_the_base_s_easyconfig(configuration: Configuration) -> None:
    """Unless the file says itself which one; a base that is built keeps its own."""
    of_base = "conda: {prefix: /opt/c, env: e}\npath: [/opt/base/bin]\n"
    write(configuration.root / "ec/Base-1.yaml", f"name: Base\nversion: '1'\nimage: {{sources: [b.sif]}}\n{of_base}")
    write(configuration.root / "ec/Middle-1.yaml", f"{HEAD}    from: Base-1\n    pip: [six]\n")
    recipe = f"{HEAD}    from: Middle-1\n    pip: [rich]\n"
    inherited = ("/opt/base/bin", "/opt/c/envs/e/bin", "/opt/c/condabin")
    plan = decided(configuration, recipe)
    assert plan.image and plan.image.build and plan.image.build.path == inherited == plan.path
    assert (plan.activation.with_conda, dict(plan.env)["CONDA_PREFIX"]) == (
        "source /opt/c/bin/activate e",
        "/opt/c/envs/e",
    )
    origins = {one.key: one.origin for one in configuration.load(configuration.root / "ec/App-1.yaml").origins}
    assert origins["conda.env"].startswith(str(configuration.root / "ec/Base-1.yaml"))
    plan = decided(configuration, f"{recipe}venv: /opt/v\n")
    assert plan.image and plan.image.build and plan.image.build.base and plan.image.build.base.build
    assert plan.image.build.path == ("/opt/base/bin", "/opt/v/bin")
    assert plan.image.build.base.build.path == inherited
    plan = decided(configuration, f"{recipe}path: [/mine]\nactivate: 'true'\n")
    assert plan.image and plan.image.build and plan.image.build.path == ("/mine",)


def test_two_files_with_one_place_are_refused(configuration: Configuration) -> None:
    here = configuration.root / "ec"
    write(here / "a/x", "a")
    write(here / "b/x", "b")
    files = "{{a/x: /opt/x, b/x: {}}}"
    for target in ("/opt/x", "/opt//./x", "/opt/"):
        (told,) = refused(configuration, f"{HEAD}    from: ./base.sif\n    files: {files.format(target)}\n")
        assert told == (
            f"6:26: image.build.files.b/x: {target} is also the path of {here}/a/x: give each file its own path"
        )
    both = f"{HEAD}    from: ./base.sif\n    files: {{a: /opt, b: /opt}}\n"
    assert planned(configuration, both).build  # directories can have other names in them


def test_of_a_base_with_variants_the_one_of_the_same_accelerator_is_taken(configuration: Configuration) -> None:
    variants = "{rocm: {image: {sources: [r.sif]}}, cuda: {image: {sources: [c.sif]}}}"
    write(configuration.root / "ec/Base-1.yaml", f"name: Base\nversion: '1'\nvariants: {variants}\n")
    plan = planned(configuration, f"{HEAD}    from: Base-1\n    pip: [six]\naccelerator: cuda\n")
    assert plan.build and plan.build.base and plan.build.base.sources == ("c.sif",)
    (told,) = refused(configuration, f"{HEAD}    from: Base-1\n    pip: [six]\naccelerator: none\n")
    assert told.startswith("5:11: image.build.from: Base-1.yaml has no variant for this machine")


@pytest.mark.parametrize("url", ["https://me:$TOKEN@h/x", "https://${TOKEN}@h/x", "https://h/x?token=$TOKEN"])
def test_commands_may_name_the_variable_of_a_login(url: str, configuration: Configuration) -> None:
    plan = planned(configuration, f"{HEAD}    from: a.sif\n    post: wget {url}\n")
    assert plan.build and plan.build.post == f"wget {url}"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("pip: [six]", "4:10: image.build: give one of from, definition and dockerfile"),
        ("{definition: a, dockerfile: b}", "4:10: image.build: give one of from, definition and dockerfile"),
        ("{definition: a.def, pip: [six]}", "4:10: image.build: pip cannot be combined with definition"),
        (
            "{from: a.sif, env: {INDEX: 'https://me:s3cret@h/simple'}}",
            "4:37: image.build.env.INDEX: a login cannot be used here, because the image would keep it",
        ),
        (
            "{from: a.sif, labels: {a: 'see https://me:s3 cret@h/x'}}",
            "4:36: image.build.labels.a: a login cannot be used here, because the image would keep it",
        ),
        (
            "{from: a.sif, env: {INDEX: 'https://h/simple?token=s3cret'}}",
            "4:37: image.build.env.INDEX: the token of a URL cannot be used here, because the image would keep it",
        ),
        (
            "{from: a.sif, post: 'pip install -i https://me:s3cret@h/simple six'}",
            "4:30: image.build.post: a login cannot be used here, because the image would keep it",
        ),
        (
            "{from: a.sif, pip: [a], test: 'wget https://h/x?token=s3cret'}",
            "4:40: image.build.test: the token of a URL cannot be used here, because the image would keep it",
        ),
        (
            "{definition: a.def, arguments: {A: 'https://me:s3cret@h'}}",
            "4:45: image.build.arguments.A: a login cannot be used here, because the image would keep it",
        ),
        ("{from: a.sif, pip: [a], arguments: {A: b}}", "4:10: image.build: arguments cannot be combined with from"),
        ("{from: a.sif}", "4:10: image.build: there is nothing to build: give pip, files, env or another key"),
        (
            "{from: a.sif, pip: [a], requirements: pylock.toml}",
            "4:10: image.build: a lock pins every package: add those under pip",
        ),
        ("{from: a.sif, pips: [six]}", "4:24: image.build.pips: unknown key; did you mean pip?"),
        ("{from: None-1, pip: [a]}", "4:17: image.build.from: no easyconfig is called 'None-1'; looked in"),
        ("{from: App-1, pip: [a]}", "4:17: image.build.from: an easyconfig cannot be its own base"),
        ("{from: View-1, pip: [a]}", "4:17: image.build.from: View-1 is a view, which has no image"),
        ("{from: '${NONE}/a.sif', pip: [a]}", "4:17: image.build.from: the source ${NONE}/a.sif cannot be used, as"),
        ("{from: a.sif, pip: [a, -r more.txt]}", "4:33: image.build.pip[1]: '-r more.txt' is not a requirement"),
        ("{from: a.sif, pip: ['--index-url=http://x']}", "4:30: image.build.pip[0]: '--index-url=http://x' is not a "),
        ("{from: a.sif, pip: [./six]}", "4:30: image.build.pip[0]: './six' is not a requirement"),
        ("{from: a.sif, pip: ['six @ file:///six']}", "4:30: image.build.pip[0]: 'six @ file:///six' names a path"),
        ("{from: a.sif, pip: ['http://h/six.whl']}", "4:30: image.build.pip[0]: 'http://h/six.whl' is not a"),
        ("{from: a.sif, files: {../a: /a}}", "4:32: image.build.files.../a: '../a' cannot be used"),
        ("{from: a.sif, files: {b/../../a: /a}}", "4:32: image.build.files.b/../../a: 'b/../../a' cannot be used"),
        ("{from: a.sif, files: {/etc/shadow: /a}}", "4:32: image.build.files./etc/shadow: '/etc/shadow' cannot be"),
        ("{from: a.sif, files: {out/shadow: /a}}", "4:32: image.build.files.out/shadow: a link leaves the easyconfig"),
        ("{from: a.sif, files: {a: b}}", "4:35: image.build.files.a: expected an absolute path, got 'b'"),
        ("{from: a.sif, files: {a: /x/../y}}", "4:35: image.build.files.a: '/x/../y' cannot be used: write"),
        ("{from: a.sif, files: {a: /}}", "4:35: image.build.files.a: '/' cannot be used: it is the root, or"),
        ("{from: a.sif, files: {a: //proc/x}}", "4:35: image.build.files.a: '//proc/x' cannot be used: it is the root"),
        ("{from: a.sif, files: {a: /./dev}}", "4:35: image.build.files.a: '/./dev' cannot be used: it is the root, or"),
        ("{from: a.sif, files: {a: /.singularity.d/env/x}}", "4:35: image.build.files.a: '/.singularity.d/env/x' can"),
        ("{from: a.sif, env: {1A: b}}", "4:30: image.build.env.1A: '1A' is not a valid variable name: use letters"),
    ],
)
def test_what_cannot_be_built_is_refused_at_its_place(configuration: Configuration, keys: str, problem: str) -> None:
    write(configuration.root / "ec/View-1.yaml", "name: View\nversion: '1'\nmodules: [A/1]\n")
    (configuration.root / "ec/out").symlink_to("/etc")
    keys = keys if keys.startswith("{") else f"{{{keys}}}"
    (told,) = refused(configuration, f"name: App\nversion: '1'\nimage:\n  build: {keys}\n")
    assert told.startswith(problem)
