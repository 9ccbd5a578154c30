"""`sifmod test`."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sifmod.cli.command import argument, command, typed_again
from sifmod.cli.context import load_facts, reporter
from sifmod.cli.later import later
from sifmod.cli.life import say_life
from sifmod.cli.output import counted, echo, print_json, print_rows, say, show_error
from sifmod.cli.shared_options import TreeOptions
from sifmod.errors import OptionError
from sifmod.system import escape_controls

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

with later():
    from sifmod.actions import slurm
    from sifmod.actions.author import new_file
    from sifmod.actions.test import choose, collective, test
    from sifmod.config import site as config_site


class SelfTestOptions(TreeOptions):
    modules: tuple[str, ...] = argument("MODULE|FILE...", many=True)
    nodes: int | None = None
    network: bool = False
    minimum: float | None = None
    job: bool = False
    account: str | None = None
    partition: str | None = None
    timeout: int = 600
    junit: str | None = None


@command("test", SelfTestOptions, lambda: test.Tested | list[test.Tested])
def test_command(given: SelfTestOptions) -> int:
    """Show whether installed modules work here: their checks, GPUs, a collective over the ranks.

    With --network, also show what carries the collective. FILE is a stack: all of its modules are tested. Of a view,
    the modules that it loads are tested. With several modules each is tested, even if others fail, and a summary ends
    the output. The exit code is 22 if a step fails.
    """
    from pathlib import Path

    if (given.account or given.partition) and not given.job:
        raise OptionError("--account and --partition need --job", "add --job to submit the test as a job")
    if given.junit:
        new_file.check_replaceable(Path(given.junit))
    site = load_facts(given.settings).site
    chosen = choose.choose(given.modules, site, given.settings)
    for installation in chosen.modules:
        say_life(installation)
    for error in chosen.errors:
        show_error(error.text, error.hint)
    tested = tuple(_in_job(chosen, site, given) if given.job else _here(chosen, site, given))
    if given.as_json:
        print_json(tested if chosen.several else tested[0])
    else:
        _print(tested, several=chosen.several)
    if given.junit:
        new_file.write_text(junit_xml(tested), Path(given.junit), force=True)
    failed = 22 if any(not one.passed for one in tested) else 0
    return max((failed, *(error.exit_code for error in chosen.errors)))


def _here(chosen: "choose.Chosen", site: "config_site.Site", given: SelfTestOptions) -> "Iterator[test.Tested]":
    wanted = test.Wanted(collective.nodes_of(given.nodes), given.network, given.minimum, given.timeout)
    yield from chosen.tested
    for one in chosen.modules:
        start = f"{one.module}: " if chosen.several else ""
        tested = test.test(one, site, wanted, partial(_say, start))
        test.record_test(one, site, reporter(), passed=tested.passed)
        yield tested


def _say(start: str, text: str) -> None:
    say(f"{start}{text}")


def _in_job(chosen: "choose.Chosen", site: "config_site.Site", given: SelfTestOptions) -> "tuple[test.Tested, ...]":
    gpus = any(one.provenance.accelerator != "none" for one in chosen.modules)
    prefixes = {one.prefix for one in chosen.modules}
    prefix = (f"--prefix={next(iter(prefixes))}",) if len(prefixes) == 1 and not given.prefix else ()
    asked = slurm.Resources(
        nodes=given.nodes or 1,
        gpus_per_node=site.gpus_per_node if gpus else 0,
        account=given.account,
        partition=given.partition,
    )
    return test.run_job(slurm.at_site(asked, site.slurm), (*chosen.words, *typed_again("test", given), *prefix), say)


def _print(tested: "Sequence[test.Tested]", *, several: bool) -> None:
    for one in tested:
        if several:
            echo(f"{one.module}:")
        print_rows([(step.outcome, step.name, f"{step.seconds:.1f} s", step.text) for step in one.steps])
        for step in one.steps:
            if step.outcome == "failed" and (step.said or step.hint):
                echo(f"\n{step.name}:")
                for line in (*step.said, *(f"hint: {hint}" for hint in (step.hint or "").splitlines())):
                    echo(f"  {line}")
        if several:
            echo("")
    if several:
        say(f"{sum(one.passed for one in tested)} of {counted(len(tested), 'module')} passed")
        for one in tested:
            if not one.passed:
                names = ", ".join(step.name for step in one.steps if step.outcome == "failed")
                say(f"  {one.module}: failed: {names}")


def junit_xml(tested: "Sequence[test.Tested]") -> str:
    """The JUnit XML: a test suite for each module, with a case for each step."""
    from xml.etree.ElementTree import Element, indent, tostring

    suites = Element("testsuites")
    for one in tested:
        _add_suite(suites, one)
    indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suites, encoding="unicode")}\n'


def _add_suite(suites: "Element", tested: "test.Tested") -> None:
    from xml.etree.ElementTree import SubElement

    steps, module = tested.steps, str(tested.module)
    counts = {word: sum(step.outcome == word for step in steps) for word in ("failed", "skipped")}
    numbers = {"tests": len(steps), "failures": counts["failed"], "errors": 0, "skipped": counts["skipped"]}
    time = f"{sum(step.seconds for step in steps):.3f}"
    suite = SubElement(suites, "testsuite", {"name": f"sifmod test {module}", "time": time})
    suite.attrib |= {name: str(number) for name, number in numbers.items()} | {"hostname": ",".join(tested.nodes)}
    for step in steps:
        names = {"classname": module.replace(".", "_"), "name": step.name, "time": f"{step.seconds:.3f}"}
        case = SubElement(suite, "testcase", names)
        match step.outcome:
            case "failed":
                failure = SubElement(case, "failure", {"message": _written(step.text), "type": "failed"})
                failure.text = _written("\n".join((step.text, *step.said, step.hint or "")))
            case "skipped":
                SubElement(case, "skipped", {"message": _written(step.text)})
            case "passed":
                SubElement(case, "system-out").text = _written(step.text)


def _written(text: str) -> str:
    """The text with only characters that XML 1.0 allows."""
    return escape_controls(text).translate({0xFFFE: "?", 0xFFFF: "?"})
