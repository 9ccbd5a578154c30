"""Render a plan to the files of a generation and the stub in the module tree: the same plan gives the same text."""

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from jinja2 import Environment

from sifmod.config.input import DEVICES
from sifmod.config.kinds import Syntax, stub_path
from sifmod.errors import ModuleError
from sifmod.module import quote
from sifmod.module.jobscript import JOB, JobOptions, job_of, job_script, to_json
from sifmod.module.plan import LAYER_TARGET, MODULES, PREFIX, ROOT, Bind, File, Plan
from sifmod.module.scripts import ANY, environment, numbered, scripts
from sifmod.module.variables import host_variables, image_variables, python_key, record_key

CONFLICTS_A_CALL = 50  # Lua passes at most about 250 arguments
_PATHS = {  # in the syntax of the modulefiles; see plan.ROOT
    "lua": {ROOT: "root", PREFIX: "word(prefix)", MODULES: 'word(prefix .. "/modules")'},
    "tcl": {ROOT: "${root}", PREFIX: "[sifmod_word $prefix]", MODULES: "[sifmod_word $prefix/modules]"},
}
_EXTENSION = re.compile(r"[A-Za-z0-9._+-]+")
_TEMPLATES = Path(__file__).with_name("templates")
_PLAIN = environment()  # for text quoted by the modulefile's template
FieldValue = str | bool | tuple[str, ...] | list[str] | list[tuple[str, str]] | list[Bind]


class Literal(str):
    """Text that is already quoted for the file's language."""


def render(plan: Plan, number: int) -> tuple[File, ...]:
    """The rendered files of generation `number`: modulefiles and their shared parts, scripts, and data for job scripts.

    The files do not contain the prefix, but find it by their own path. Raises ModuleError for an invalid name or value.
    """
    # module tools and scripts print names unquoted: they are checked against the rules of the configuration
    for name in (plan.module.name, plan.module.version, *plan.conflict, *plan.depends_on):
        _match("[A-Za-z0-9][A-Za-z0-9._+/-]*", name, "a module's name")
    for wrapper in plan.wrappers:
        _match("[A-Za-z0-9][A-Za-z0-9._+-]*", wrapper.name, "a wrapper's name")
    for name, _ in plan.runscript_env:
        _match("[A-Za-z_][A-Za-z0-9_]*", name, "a variable's name")
    if plan.family is not None:
        _match("[A-Za-z0-9][A-Za-z0-9_]*", plan.family, "the name of a family")
    for name, value in (*host_variables(plan, "/"), *plan.default_env, *plan.container_env):
        _match("[A-Za-z_][A-Za-z0-9_]*", name, "a variable's name")
        if re.search(r"[\x00-\x1f\x7f]", value):
            raise ModuleError(f"the value of {name} contains a line break or another control character: {value!r}")
    files: list[File] = []
    for syntax in plan.syntaxes:
        files.append(File(f"modulefile.{syntax}", numbered(plan, _modulefile(syntax, plan, ANY), number)))
        shared = (f"share/module.{syntax}", f"share/environment.{syntax}")
        files.extend(File(path, _constant(path)) for path in shared)
    if plan.image:
        files += scripts(plan, number)
    return (*files, File(JOB, _job_file(plan)))


@lru_cache(maxsize=2)
def _modulefile(syntax: Syntax, plan: Plan, number: int) -> str:
    # Environment Modules loads two versions of one module unless each conflicts with its own name
    conflict = (plan.module.name, *plan.conflict) if syntax == "tcl" else plan.conflict
    return (
        templates(syntax)
        .get_template(f"modulefile.{syntax}.j2")
        .render(
            plan=plan,
            generation=plan.place_of(number),
            help=_text(_help(plan), syntax),
            whatis=tuple(_text(" ".join(line.split()), syntax) for line in _whatis(plan)),
            extensions=", ".join(
                f"{name}/{version}"
                for name, version in (plan.help.contents if plan.help.extensions is None else plan.help.extensions)
                if _EXTENSION.fullmatch(name) and _EXTENSION.fullmatch(version)
            ),
            conflicts=tuple(conflict[i : i + CONFLICTS_A_CALL] for i in range(0, len(conflict), CONFLICTS_A_CALL)),
            key=record_key(plan),
            fields=_spelled(_fields(plan), syntax),
        )
    )


def _fields(plan: Plan) -> Iterator[tuple[str, FieldValue, str]]:
    """What a load gets besides key and root: names, values, notes for people. A list has a line for each item."""
    yield "runtime", plan.runtime.kind, ""
    yield "reinstall", plan.reinstall(PREFIX), ""
    yield "image", [*plan.images_of(ROOT)], "the first that exists"
    yield "image_variables", image_variables(plan.module) if plan.image else (), ""
    yield "python_key", python_key(plan), ""
    yield "binds", [*plan.binds_of(ROOT)], ""
    if plan.user_software:
        yield "user_software", [str(bind) for bind in plan.user_software_of(ROOT)], "the first that exists"
    if plan.scratch:
        yield "scratch", plan.scratch, ""
    if plan.layers:
        yield "layers", plan.layers, "below a directory of layers, which `sifmod add` makes"
        yield "layer_target", LAYER_TARGET, ""
    if plan.layers and plan.stale_layer != "warn":
        yield "stale_layer", plan.stale_layer, ""
    if plan.warn_without_version:
        yield "warn_without_version", True, ""
    if plan.help.driver:
        device = dict(DEVICES).get(plan.accelerator, "")
        yield "driver", (device, plan.help.driver), "said at a load where this device is"
    yield "flags", tuple(flag.upper() for flag in plan.gpu_flags), ""
    yield "path_inside", [*plan.prepend_path], ""
    yield "env_inside", [*plan.container_env], ""
    if plan.default_env:
        yield "default_env", [*plan.default_env], "where the user has none"
    yield "env", [*host_variables(plan, ROOT)], ""


def _spelled(fields: Iterable[tuple[str, FieldValue, str]], syntax: Syntax) -> Literal:
    """Fields of a Lua table, or words of a Tcl command."""
    match syntax:
        case "lua":
            noted = ((name, value, f" -- {note}" if note else "") for name, value, note in fields)
            return Literal("\n".join(f"      {name} = {_in_lua(value, note)}" for name, value, note in noted))
        case "tcl":
            return Literal(" \\\n".join(f"        {name} {_in_tcl(value)}" for name, value, _ in fields))


def _in_lua(value: FieldValue, note: str) -> str:
    match value:
        case bool():
            return f"true,{note}"
        case str():
            return f"{_here(value, 'lua')},{note}"
        case tuple():
            return f"{{ {', '.join(map(quote.lua, value))} }},{note}" if value else f"{{}},{note}"
    lines = [f"{{{note}"]
    for item in value:
        match item:
            case Bind(optional=optional):
                lines.append(f"   {{ {_here(str(item), 'lua')}{', optional = true' if optional else ''} }},")
            case (name, text):  # a lower-case name might be a keyword
                name = f'["{name}"]' if name.islower() else name
                lines.append(f"   {name} = {_here(text, 'lua')},")
            case str():
                lines.append(f"   {_here(item, 'lua')},")
    return "\n      ".join((*lines, "},"))


def _in_tcl(value: FieldValue) -> str:
    match value:
        case bool():
            return "1"
        case str():
            return _here(value, "tcl")
        case tuple():
            return f"[list {' '.join(map(quote.tcl, value))}]"
    lines = ["[list"]
    for item in value:
        match item:
            case Bind(optional=optional):
                lines.append(f"    {_here(str(item), 'tcl')} {'optional' if optional else 'required'}")
            case (name, text):
                lines.append(f"    {name} {_here(text, 'tcl')}")
            case str():
                lines.append(f"    {_here(item, 'tcl')}")
    return " \\\n        ".join((*lines, "]"))


@lru_cache(maxsize=2)  # like `_help`, the same in every generation
def _job_file(plan: Plan) -> str:
    return to_json(job_of(plan) if plan.image else None, plan.help)


def render_stub(plan: Plan) -> tuple[File, ...]:
    """The stubs in the module tree, relative to `<prefix>/modules`, which evaluate a generation's modulefiles.

    They find the switch by their own path, and are the same for every generation of a module.
    """
    files = []
    for syntax in plan.syntaxes:
        path, modulefile = stub_path(plan.module, syntax), f"{plan.switch}/modulefile.{syntax}"
        values = {"module": str(plan.module), "stub": f"/modules/{path}", "modulefile": modulefile}
        values["generation"] = f"_SIFMOD_GENERATION_{record_key(plan)}"
        files.append(File(path, templates(syntax).get_template(f"stub.{syntax}.j2").render(values)))
    return tuple(files)


@cache
def _constant(path: str) -> str:
    return (_TEMPLATES / path).read_text("utf-8")


def _whatis(plan: Plan) -> tuple[str, ...]:
    """The whatis lines: the description's first paragraph unless the easyconfig has one, its own, and the homepage."""
    lines = plan.help.whatis
    if not any(line.startswith("Description:") for line in lines):
        paragraph, _, _ = plan.help.description.strip().partition("\n\n")
        lines = (f"Description: {paragraph}", *lines)
    return (*lines, f"URL: {plan.help.homepage}") if plan.help.homepage else lines


@lru_cache(maxsize=2)
def _help(plan: Plan) -> str:
    """The module's help text; see plan.ROOT for its paths."""
    return _PLAIN.get_template("help.txt.j2").render(
        plan=plan,
        description=plan.help.description.strip(),
        commands=", ".join(wrapper.name for wrapper in plan.wrappers),
        start=f"{plan.runtime.kind} {plan.verb}",
        job=job_script(job_of(plan), JobOptions(), MODULES) if plan.image else "",
        modules=", ".join(plan.modules),
        bind_variable=f"{plan.runtime.prefixes[-1]}_BIND",
        contents=", ".join(f"{name} {version}" for name, version in plan.help.contents),
        reinstall=plan.reinstall(PREFIX),
        urls=tuple(url for url in (plan.help.homepage, *plan.help.docurls) if url),
    )


def _text(text: str, syntax: Syntax) -> str:
    """`text`, in a Tcl modulefile without `]=`: Lmod puts its texts between `[===[` and `]===]`, and evaluates them."""
    return text.replace("]=", "] =") if syntax == "tcl" else text


def _match(pattern: str, name: str, what: str) -> None:
    if not re.fullmatch(pattern, name):
        raise ModuleError(f"{name!r} cannot be {what}")


@cache  # compiling them takes longer than rendering
def templates(syntax: Syntax) -> Environment:
    """The templates for a syntax, which only print quoted literals: a value without a filter raises ModuleError."""
    made = environment(finalize=_only_literals, keep_trailing_newline=True)
    literal, comma = quote.SPELLED[syntax], quote.BETWEEN[syntax]

    def quote_all(texts: tuple[str, ...]) -> Literal:
        return Literal(comma.join(map(literal, texts)))

    made.filters |= {
        "quote": lambda text: Literal(literal(text)),
        "quote_all": quote_all,
        "comment": lambda text: Literal(re.sub(r"[^ -\[\]^-z|~]", "?", text)),
        "here": lambda text: Literal(_here(text, syntax)),
    }
    return made


def _only_literals(value: object) -> Literal:
    if not isinstance(value, Literal):
        raise ModuleError(f"a template prints an unquoted value: {value!r}")
    return value


def _here(text: str, syntax: Syntax) -> str:
    """A text with placeholders for paths, as one word of the language; see plan.ROOT."""
    paths = _PATHS[syntax]
    parts = [part for part in re.split(f"({'|'.join(paths)})", text) if part]
    literal = quote.SPELLED[syntax]
    words = [paths[part] if part in paths else literal(part) for part in parts] or [literal("")]
    match syntax:
        case "lua":
            return " .. ".join(words)
        case "tcl":
            plain = all(part == ROOT or re.fullmatch("[A-Za-z0-9_./:,=+-]*", part) for part in parts)
            return "".join(words) if plain or len(words) == 1 else f"[format {'%s' * len(words)} {' '.join(words)}]"
