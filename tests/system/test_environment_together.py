"""Several modules, versions and generations in one shell: none cripples another, and all go without a trace."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

import pytest

from loads import NAME, another, unloads, users, visited
from plans import Published, plan, publish
from sifmod.config.name import ModuleName
from sifmod.module.plan import Bind, Runtime
from support.module_tool import ModuleTool


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """A prefix whose path would break what does not quote it."""
    return str(tmp_path / "pre fix")


@pytest.fixture
def pytorch(prefix: str) -> Published:
    return publish(plan(prefix=prefix))


def binds_of(published: Published, *more: str) -> str:
    return ",".join((f"{published.root}/runscripts:/runscripts:ro", *more))


@pytest.mark.parametrize("first", ["A", "B"])
def test_two_modules_are_unloaded_in_either_order(module_tool: ModuleTool, prefix: str, first: str) -> None:
    made = {
        "A": another(prefix, "A", "/usr", "/etc", ONLY_A="1", BOTH="a"),
        "B": another(prefix, "B", "/etc", "/var", ONLY_B="1", BOTH="b"),
    }
    second = "B" if first == "A" else "A"
    env = {"SINGULARITY_BINDPATH": "/opt"}
    steps = ("module load A", "module load B", f"module unload {first}", f"module unload {second}")
    done = unloads(module_tool, made["A"].modules, *steps, env=env)
    alone = visited(module_tool, made["A"].modules, f"module load {second}", env=env)
    both = done[2].environment
    assert both["SINGULARITY_BINDPATH"] == f"/opt,{binds_of(made['B'], '/etc', '/var', '/usr')}"
    assert (both["APPTAINERENV_BOTH"], both["SIF"]) == ("b", str(made["B"].image))
    # what is left is not crippled: it is as if it had been loaded alone
    assert users(done[3]) == users(alone[1])


def test_three_modules_are_unloaded_in_any_order(module_tool: ModuleTool, prefix: str) -> None:
    made = [
        another(prefix, name, "/etc", f"/{place}", BOTH=name)
        for name, place in (("A", "usr"), ("B", "var"), ("C", "opt"))
    ]
    loads = [f"module load {name}" for name in "ABC"]
    for order in permutations("ABC"):
        steps = (*loads, *(f"module unload {name}" for name in order))
        done = unloads(module_tool, made[0].modules, *steps, env={"APPTAINER_BINDPATH": "/home"})
        left = [name for name in "ABC" if name != order[0]]
        alone = visited(
            module_tool, made[0].modules, *(f"module load {name}" for name in left), env={"APPTAINER_BINDPATH": "/home"}
        )
        assert users(done[4]) == users(alone[-1]), order


def test_a_module_of_either_runtime_beside_the_other(module_tool: ModuleTool, prefix: str) -> None:
    apptainer = another(prefix, "A", "/usr")
    made = plan(
        prefix=prefix, module=ModuleName("S", "1"), runtime=Runtime("singularity", ""), binds=(Bind("/etc", "/etc"),)
    )
    singularity = publish(made)
    steps = ("module load A", "module load S", "module unload A", "module unload S")
    done = unloads(module_tool, apptainer.modules, *steps, env={"APPTAINER_BINDPATH": "/x"})
    both = f"/x,{binds_of(singularity, '/etc', '/usr')}"
    assert done[2].environment["SINGULARITY_BINDPATH"] == done[2].environment["APPTAINER_BINDPATH"] == both
    assert done[3].environment["APPTAINER_BINDPATH"] == "/x"


def test_purge_and_several_modules_in_one_command(module_tool: ModuleTool, prefix: str) -> None:
    made = another(prefix, "A", "/usr", BOTH="a")
    another(prefix, "B", "/etc", BOTH="b")
    env = {"SIF": "mine", "SINGULARITY_BINDPATH": "/a,,/b"}
    done = unloads(module_tool, made.modules, "module load A B", "module purge", env=env)
    one_by_one = visited(module_tool, made.modules, "module load A", "module load B", env=env)
    assert users(done[1]) == users(one_by_one[2])


def test_swap(module_tool: ModuleTool, prefix: str) -> None:
    made = another(prefix, "A", "/usr", ONLY_A="a")
    another(prefix, "B", "/etc", ONLY_B="b")
    done = unloads(module_tool, made.modules, "module load A", "module swap A B", "module unload B")
    alone = visited(module_tool, made.modules, "module load B")
    assert users(done[2]) == users(alone[1])


def test_load_twice_and_reload(module_tool: ModuleTool, pytorch: Published) -> None:
    steps = (f"module load {NAME}", f"module load {NAME}", "module reload", f"module unload {NAME}")
    done = unloads(module_tool, pytorch.modules, *steps, env={"SIF": "mine"})
    assert users(done[1]) == users(done[2]) == users(done[3])


def test_another_version_takes_the_place_of_the_first(module_tool: ModuleTool, pytorch: Published, prefix: str) -> None:
    newer = publish(
        plan(prefix=prefix, module=ModuleName("PyTorch", "3"), version="3", gpu_flags=(), env=(("NEW", "1"),))
    )
    steps = (f"module load {NAME}", f"module swap {NAME} PyTorch/3", "module unload PyTorch")
    done = unloads(module_tool, pytorch.modules, *steps, env={"SIF": "mine"})
    alone = visited(module_tool, newer.modules, "module load PyTorch/3", env={"SIF": "mine"})
    assert users(done[2]) == users(alone[1])


def test_names_that_differ_in_case_do_not_meet(module_tool: ModuleTool, pytorch: Published, prefix: str) -> None:
    another(prefix, "pytorch", "/etc")
    another(prefix, "py-torch", "/etc")
    loads = (f"module load {NAME}", "module load pytorch", "module load py-torch")
    unloads(
        module_tool, pytorch.modules, *loads, "module unload pytorch", f"module unload {NAME}", "module unload py-torch"
    )


def test_a_nested_shell_unloads_what_its_parent_loaded(module_tool: ModuleTool, pytorch: Published) -> None:
    inner = "bash -c '{0}; export APPTAINER_BINDPATH=$APPTAINER_BINDPATH,/new; module unload PyTorch; env -0' >inner"
    start = module_tool.initialise.replace('export MODULEPATH="$1"', ":").replace("'", "'\\''")
    steps = (f"module load {NAME}", inner.format(start), "cat inner", f"module unload {NAME}")
    done = unloads(module_tool, pytorch.modules, *steps, env={"SIF": "mine"})
    inside = dict(pair.split("=", 1) for pair in done[3].stdout.split("\0") if pair)
    assert (inside["SIF"], inside["APPTAINER_BINDPATH"], "SINGULARITY_BINDPATH" in inside) == ("mine", "/new", False)


def test_a_foreign_module_may_add_binds_of_its_own(module_tool: ModuleTool, pytorch: Published) -> None:
    foreign = pytorch.modules / "foreign"
    foreign.mkdir()
    (foreign / "1.lua").write_text('prepend_path("SINGULARITY_BINDPATH", "/foreign", ",")\n')
    (foreign / "1").write_text("#%Module1.0\nprepend-path -d , SINGULARITY_BINDPATH /foreign\n")
    load, unload = f"module load {NAME}", f"module unload {NAME}"
    env = {"SINGULARITY_BINDPATH": "/a"}
    ours_first = (load, "module load foreign", unload, "module unload foreign")
    done = unloads(module_tool, pytorch.modules, *ours_first, env=env)
    assert done[3].environment["SINGULARITY_BINDPATH"] == "/foreign,/a"
    assert "APPTAINER_BINDPATH" not in done[3].environment
    for steps in (
        (load, "module load foreign", "module unload foreign", unload),
        ("module load foreign", load, "module unload foreign", unload),
        ("module load foreign", load, unload, "module unload foreign"),
    ):
        unloads(module_tool, pytorch.modules, *steps, env=env)


GENERATIONS: Sequence[Mapping[str, tuple[tuple[str, str], ...]]] = (
    {"env": (("FIRST", "1"), ("SAME", "x"), ("CHANGED", "1")), "host_env": (("HOST_FIRST", "1"),)},
    {"env": (("SECOND", "1"), ("SAME", "x"), ("CHANGED", "2")), "host_env": (("HOST_SECOND", "1"),)},
)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_module_reinstalled_after_the_load(module_tool: ModuleTool, prefix: str, order: tuple[int, int]) -> None:
    first, second = (
        plan(prefix=prefix, binds=(Bind(f"/{place}", "/x"),), **GENERATIONS[i])
        for i, place in zip(order, ("usr", "etc"), strict=True)
    )
    made = publish(first, generation=7)
    publish(second, generation=8)
    software = f'"{prefix}/software/PyTorch/'
    back = f'ln -sfn .generations/2.2.0-rocm-5.6.1/7 {software}2.2.0-rocm-5.6.1"'
    forth = back.replace("5.6.1/7", "5.6.1/8")
    env = {"SIF": "mine", "SINGULARITYENV_CHANGED": "user's", "HOST_FIRST": "user's"}
    steps = (back, f"module load {NAME}", forth, f"module unload {NAME}", f"module load {NAME}", back, "module purge")
    done = unloads(module_tool, made.modules, *steps, env=env)
    assert users(done[4]) == users(done[0])
    assert done[2].environment["SIF"] == str(made.image)
    assert done[5].environment["SIF"] == str(made.image).replace("/7/", "/8/")
    # loading it again is all it takes to get the new one
    done = unloads(
        module_tool, made.modules, back, f"module load {NAME}", forth, "module reload", "module purge", env=env
    )
    assert done[4].environment["SIF"] == str(made.image).replace("/7/", "/8/")


@pytest.mark.parametrize("gone", ["generation", "switch"])
def test_what_was_loaded_is_gone(module_tool: ModuleTool, prefix: str, gone: str) -> None:
    made = publish(plan(prefix=prefix, env=(("OLD", "1"),)), generation=1)
    publish(plan(prefix=prefix, env=(("NEW", "1"),)), generation=2)
    back = f'ln -sfn .generations/2.2.0-rocm-5.6.1/1 "{prefix}/software/PyTorch/2.2.0-rocm-5.6.1"'
    forth = back.replace("5.6.1/1", "5.6.1/2")
    remove = f'rm -r "{made.root}"' if gone == "generation" else f'rm "{prefix}/software/PyTorch/2.2.0-rocm-5.6.1"'
    steps = (back, f"module load {NAME}", forth, remove, f"module unload {NAME}")
    unloads(module_tool, made.modules, *steps, env={"SIF": "mine"})


def test_a_module_of_another_format_is_not_mixed_in(module_tool: ModuleTool, pytorch: Published, prefix: str) -> None:
    another(prefix, "B")
    steps = ("module load B", 'export _SIFMOD_WANT_B="2;$_SIFMOD_WANT_B"', f"module load {NAME}")
    done = module_tool.session(steps, pytorch.modules)
    assert done[2].code != 0
    assert "B was loaded by another version of sifmod" in " ".join(done[2].stderr.split())
    assert users(done[2]) == users(done[1])
