"""`sifmod check`, `new`, `import`, `schema` and `lock`: commands for authors of easyconfigs."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import click

from sifmod.actions.start import site_in_force
from sifmod.cli.command import Options, argument, command
from sifmod.cli.context import load_facts, reporter
from sifmod.cli.later import later
from sifmod.cli.output import counted, echo, print_json, quiet, say, show_error, write
from sifmod.cli.shared_options import ConversionOptions, SiteOptions
from sifmod.errors import ConfigError, EasyconfigNotFoundError, Error, OptionError, Problem, SifmodError, as_result
from sifmod.system import one_line

with later():
    from sifmod.actions import lock as locks
    from sifmod.actions.author import check, import_easyconfig, new, new_file
    from sifmod.actions.stack import record, stack_plan
    from sifmod.cli import outputs, progress, stack_files
    from sifmod.config import load_site, schema, stack
    from sifmod.config import word as words
    from sifmod.imports import modulefile, result

Words = tuple[str, ...]


class CheckOptions(SiteOptions):
    files: tuple[str, ...] = argument("FILE|DIRECTORY...", many=True)
    variants: Words = ()


@command("check", CheckOptions, lambda: list[check.CheckedFile])
def check_command(given: CheckOptions) -> int:
    """Validate easyconfigs and render what they would install. Problems are printed as file:line:column: key: message.

    Stacks, settings, site files, quirks and MPI profiles are checked too; questionable binds give a warning. In a
    DIRECTORY everything is checked except presets, which are checked where they are used. Problems of other files that
    the easyconfigs use are reported at the end, once each.
    """
    context = site_in_force(given.settings)
    only = tuple(dict.fromkeys(given.variants))
    results: list[check.CheckedFile] = []
    codes: list[int] = []
    shared: dict[str, int] = {}  # number of files that a shared problem affects
    for file in given.files:
        for path in check.files_below(Path(file)) or (file,):
            found = _checked(path, context, only)
            codes.append(found.exit_code)
            results.append(found.result)
            for line in found.elsewhere:
                shared[line] = shared.get(line, 0) + 1
            if found.lines and not given.as_json:
                echo("\n".join(found.lines))
    if given.as_json:
        print_json(results)
    else:
        for line, number in shared.items():
            echo(f"{line} ({counted(number, 'file')})" if number > 1 else line)
    if len(codes) > 1:
        say(f"{codes.count(0)} of {counted(len(codes), 'file')} ok")
    return max(codes)


@dataclass(frozen=True)
class Found:
    """The output of `check` for a file: a result, lines about it, and lines about the files that it uses."""

    result: "check.CheckedFile"
    lines: Words
    elsewhere: Words = ()
    exit_code: int = 0


def _checked(word: str, context: "load_site.LoadedSite", variants: Words) -> Found:
    path = Path(word)
    try:
        if os.path.isdir(word):  # noqa: PTH112 (a name may be of any length)
            hint = "a .yaml file is needed that is not hidden; presets are checked by an easyconfig that uses one"
            raise EasyconfigNotFoundError(f"no easyconfig, site or quirk was found in {word}", hint)
        path = words.resolve_easyconfig(word, context.site)
        if (kind := check.settings_kind(path)) == "stack":
            number = check.check_stack(path, context)
            return _fine(path, (), (), [f"{one_line(str(path))}: ok: a stack of {counted(number, 'easyconfig')}"])
        if kind:
            warnings = check.check_settings(path, kind, os.environ)
            return _fine(path, warnings, (), [f"{one_line(str(path))}: ok: a {kind}"])
        checked = check.check(path, context, variants)
    except SifmodError as error:
        result = check.CheckedFile(path.absolute(), error=as_result(error))
        if isinstance(error, ConfigError):
            return Found(result, *_places(path, error.problems), error.exit_code)
        return Found(result, (str(error), *([f"hint: {error.hint}"] if error.hint else [])), (), error.exit_code)
    name = one_line(str(path))
    fine = [f"{name}: ok: {one.module}{f' (variant {one.variant})' if one.variant else ''}" for one in checked]
    return _fine(path, dict.fromkeys(problem for one in checked for problem in one.warnings), checked, fine)


def _fine(path: Path, warnings: Iterable[Problem], modules: "tuple[check.Checked, ...]", lines: list[str]) -> Found:
    own, elsewhere = _places(path, warnings, " (warning)")
    return Found(check.CheckedFile(path.absolute(), modules, tuple(warnings)), (*own, *lines), elsewhere)


def _places(path: Path, problems: Iterable[Problem], end: str = "") -> tuple[Words, Words]:
    """Lines for the problems of the file, and for those of files that it uses; each ends with `end`."""
    lines = [(problem.file == str(path), f"{problem}{end}") for problem in problems]
    return tuple(line for own, line in lines if own), tuple(line for own, line in lines if not own)


class NewCommand(ConversionOptions):
    reference: str | None = argument("[REFERENCE|FILE]", default=None)
    base: str | None = None
    pip: Words = ()
    output: str | None = None
    name: str | None = None
    version: str | None = None
    arch: str | None = None


@command("new", NewCommand, lambda: new.Draft)
def new_command(given: NewCommand) -> None:
    """Draft an easyconfig for an image, and print its path.

    Name, version, accelerator, Python environment and wrappers are guessed from the image's metadata and files; the
    image is not started. A remote image is fetched into the store; a local SIF is read in place. With --from the
    easyconfig builds its own image. Without -o the file is <Name>-<version><versionsuffix>.yaml in the current
    directory; existing files are never overwritten.
    """
    if (given.reference is None) == (given.base is None) or bool(given.pip) != (given.base is not None):
        raise OptionError("give either an image, or --from BASE with --pip PACKAGE")
    output, show = given.output, not given.quiet
    if output not in (None, "-"):
        new_file.check_target(Path(output))
    options = new.NewOptions(
        name=given.name,
        version=given.version,
        arch=given.arch,
        offline=given.offline,
        into_home=given.yes,
        pip=given.pip or None,
        own_name=output is None,
    )
    with progress.progress(show) as update:
        draft = new.make_draft(
            given.reference or str(given.base),
            load_facts(given.settings),
            options,
            reporter(say if show else quiet, update),
        )
    target = None if output == "-" else Path(output or draft.filename)
    if target is not None:
        new_file.write_text(draft.text, target)
    if given.as_json:
        print_json(replace(draft, path=target and target.absolute(), image=draft.image.absolute()))
    elif target is None:
        echo(draft.text, nl=False)
    else:
        echo(target)
        if show:
            say(f"{draft.module}: review the guesses, then run `sifmod install {target}`")


class ImportOptions(SiteOptions):
    files: tuple[str, ...] = argument("FILE|DIRECTORY...", many=True)
    output: str = "."
    name_from: str = "path"
    module_tree: str | None = None
    force: bool = False


@command("import", ImportOptions, lambda: list[import_easyconfig.ImportedFile])
def import_command(given: ImportOptions) -> int:
    """Convert other tools' files into easyconfigs, and print their paths.

    Reads LUMI EasyBuild .eb files, singularity-hpc container.yaml files, and NGC or Biocontainers Lua modulefiles; in a
    directory, all of them. Files are read, never executed. The module of a Lua modulefile has the name that
    users load, unless --name-from whatis. Parts that could not be converted are listed at the top of each easyconfig
    and on standard error. A file that does not give a valid easyconfig is rejected with the reason; the others are
    written, and the exit code is 5.
    """
    directory, module_tree = Path(given.output), given.module_tree
    if directory.exists() and not directory.is_dir():
        raise OptionError(f"{directory} is not a directory")
    new_file.check_not_of_others(directory)
    if module_tree and not Path(module_tree).is_dir():
        raise OptionError(f"--module-tree: there is no directory {module_tree}")
    naming = modulefile.Naming(given.name_from == "whatis", Path(module_tree) if module_tree else None)
    results: list[import_easyconfig.ImportedFile] = []
    outcomes: dict[Path, import_easyconfig.NewEasyconfig | Error] = {}
    repeated = {True: 0, False: 0}  # files that give the same as another, by whether that was written
    facts = load_facts(given.settings)  # its limits hold from here
    sources = import_easyconfig.find_sources(tuple(map(Path, given.files)))
    for one in import_easyconfig.convert(sources, facts, naming):
        notes = one.notes
        if one.same_as:
            outcome = outcomes[one.same_as]
            written = not isinstance(outcome, Error)
            repeated[written] += 1
            notes = (f"the same as {one.same_as}{', imported once' if written else ''}",)
        else:
            outcome = outcomes[one.source] = _imported(one, directory, given)
        results.append(import_easyconfig.ImportedFile(str(one.source), notes, outcome))
    if number := repeated[True]:
        say(f"{counted(number, 'file')} that give the same easyconfig as another: imported once")
    if number := repeated[False]:
        say(f"{counted(number, 'file')} that give the same easyconfig as one that was not written: not imported either")
    if given.as_json:
        print_json(results)
    return max((outcome.exit_code for outcome in outcomes.values() if isinstance(outcome, Error)), default=0)


def _imported(
    one: "import_easyconfig.Converted", directory: Path, given: ImportOptions
) -> "import_easyconfig.NewEasyconfig | Error":
    """Write an easyconfig, and report its path or why it is not written."""
    try:
        if one.problem:
            raise result.CannotImportError(one.problem, line=one.line)
        path = import_easyconfig.write(one, directory, given.force)
    except (result.CannotImportError, OptionError) as error:
        show_error(f"{one_line(str(one.source))}: {error.message}{f'; {error.hint}' if error.hint else ''}")
        if isinstance(error, result.CannotImportError):
            return as_result(error)._replace(file=str(one.source), line=error.line or 0)
        return as_result(error)
    for note in one.notes:
        say(f"{one.source}: {note}")
    if not given.as_json:
        echo(path)
    return import_easyconfig.NewEasyconfig(path.absolute(), one.module)


class SchemaOptions(Options):
    verb: str | None = None
    stack: bool = False
    hooks: bool = False


@command("schema", SchemaOptions)
def schema_command(given: SchemaOptions) -> None:
    """Print the JSON Schema of an easyconfig, a stack, a command's --json output, or a hook's input."""
    import json

    verb = given.verb
    if verb is None and not given.hooks:
        write(json.dumps(schema.stack_schema() if given.stack else schema.easyconfig_schema(), indent=2))
        return
    if given.hooks:
        write(json.dumps(outputs.hook_schema(), indent=2))
        return
    if verb and verb not in outputs.outputs():
        raise click.BadParameter(f"expected one of {', '.join(outputs.outputs())}, got {verb!r}", param_hint="--output")
    found = outputs.output_schema(verb) if verb else {name: outputs.output_schema(name) for name in outputs.outputs()}
    write(json.dumps(found, indent=2))


class LockOptions(SiteOptions):
    easyconfigs: tuple[str, ...] = argument("FILE|NAME...", many=True)
    variants: Words = ()
    output: Path | None = None


@command("lock", LockOptions, lambda: locks.WrittenLock | list[locks.WrittenLock])
def lock_command(given: LockOptions) -> None:
    """Lock installed easyconfigs: `install --locked` then installs exactly the same elsewhere, or fails.

    Without -o, the lock of FILE.yaml is FILE.lock beside it, and that of a NAME is in the current directory.
    """
    stacks = (given.easyconfigs,) if given.output else tuple((word,) for word in given.easyconfigs)
    written = []
    for words in stacks:
        path = locks.lock_path(words[0], given.output)
        planned = stack_plan.read_stack(stack.stack_of(words, given.variants), stack_files.installed_stack(given))
        modules = record.write_lock(planned, path, locks.lock_path(words[0]).parent)
        if not given.as_json:
            stack_files.say_locked(path, modules, locks.lock_path(words[0]))
        written.append(locks.WrittenLock(path, tuple(one.module for one in modules)))
    if given.as_json:
        print_json(written[0] if len(written) == 1 else written)
