"""Any sequence of loads, unloads and changes by hand gives what a short model of the rules gives."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loads import another, users
from support.module_tool import ModuleTool

ACTIONS = ("load A", "load B", "load C", "unload A", "unload B", "unload C", "set SIF", "unset SIF", "add S", "add A")
WANTS = {"A": ("/etc", "/usr"), "B": ("/usr", "/var"), "C": ("/home",)}


class Model:
    """The rules of docs/design.md, section 6, for SIF and the bind paths, without any modulefile."""

    def __init__(self, tool: str, sif: str | None, own: dict[str, list[str] | None]) -> None:
        self.reloads = tool == "lmod"  # Environment Modules takes the load of a loaded module for done
        self.sif, self.own = sif, own
        self.loaded: list[str] = []
        self.claims: list[str] = []

    def happens(self, action: str) -> bool:
        """Whether a module tool evaluates a modulefile for this."""
        verb, what = action.split()
        return (verb == "load" and (self.reloads or what not in self.loaded)) or (
            verb == "unload" and what in self.loaded
        )

    def act(self, action: str, number: int) -> str:
        """Do it here, and give the shell's command for it."""
        verb, what = action.split()
        if verb == "load" and (self.reloads or what not in self.loaded):
            for names in (self.loaded, self.claims):
                names[:] = [name for name in names if name != what]
                names.append(what)
        elif verb == "unload":
            for names in (self.loaded, self.claims):
                names[:] = [name for name in names if name != what]
        elif what == "SIF":
            self.sif, self.claims = (f"/sif{number}" if verb == "set" else None), []
            return f"export SIF=/sif{number}" if verb == "set" else "unset SIF"
        elif verb == "add":
            name = {"S": "SINGULARITY_BINDPATH", "A": "APPTAINER_BINDPATH"}[what]
            self.own[name] = [*filter(None, self.own[name] or []), f"/new{number}"]
            return f"export {name}=${{{name}:+${name},}}/new{number}"
        return f"module {action}"

    def expected(self, roots: dict[str, Path]) -> dict[str, str | None]:
        """SIF and the binds, after a load or an unload."""
        values: dict[str, str | None] = {name: None if own is None else ",".join(own) for name, own in self.own.items()}
        if self.loaded:
            entries = [entry for own in self.own.values() for entry in own or []]
            for name in reversed(self.loaded):
                entries += [f"{roots[name]}/runscripts:/runscripts:ro", *WANTS[name]]
            one_each: dict[str, str] = {}
            for entry in filter(None, entries):
                one_each.setdefault(entry.split(":")[1] if ":" in entry else entry, entry)
            values = dict.fromkeys(self.own, ",".join(one_each.values()))
        values["SIF"] = f"{roots[self.claims[-1]]}/pytorch-2.2.0.sif" if self.claims else self.sif
        return values


OWN_BINDS = st.sampled_from([None, [""], ["/a"], ["/a", "/usr"], ["/b", "/var", "/etc"]])


@given(
    actions=st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=10),
    last=st.permutations("ABC"),
    sif=st.sampled_from([None, "", "/mine"]),
    singularity=OWN_BINDS,
    apptainer=OWN_BINDS,
)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_loads_unloads_and_changes(
    module_tool: ModuleTool,
    tmp_path_factory: pytest.TempPathFactory,
    actions: list[str],
    last: list[str],
    sif: str | None,
    singularity: list[str] | None,
    apptainer: list[str] | None,
) -> None:
    prefix = str(tmp_path_factory.mktemp("any"))
    made = {name: another(prefix, name, *binds) for name, binds in WANTS.items()}
    model = Model(module_tool.name, sif, {"SINGULARITY_BINDPATH": singularity, "APPTAINER_BINDPATH": apptainer})
    env = {name: value for name, value in model.expected({}).items() if value is not None}
    steps, expected = ["true"], {}
    for number, action in enumerate((*actions, *(f"unload {name}" for name in last)), start=1):
        happens = model.happens(action)
        steps.append(model.act(action, number))
        if happens:
            expected[number] = model.expected({name: published.root for name, published in made.items()})
    done = module_tool.session(steps, made["A"].modules, env)
    assert [step.code for step in done] == [0] * len(steps)
    for number, values in expected.items():
        assert {name: done[number].environment.get(name) for name in values} == values, steps[: number + 1]
    # when all are unloaded, the user has what he would have had without any module
    own = {name: value for name, value in model.expected({}).items() if value is not None}
    assert users(done[-1]) == {**{n: v for n, v in users(done[0]).items() if n not in env}, **own}
