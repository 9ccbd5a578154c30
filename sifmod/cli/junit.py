"""A test as JUnit's XML, in the form that CI systems read."""

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

if TYPE_CHECKING:
    from sifmod.cli.outputs.test import TestData


def junit_xml(data: "TestData") -> str:
    """One suite, with a case for each step."""
    steps = data["steps"]
    counts = {word: sum(step["outcome"] == word for step in steps) for word in ("failed", "skipped")}
    numbers = {"tests": len(steps), "failures": counts["failed"], "errors": 0, "skipped": counts["skipped"]}
    time = f"{sum(step['seconds'] for step in steps):.3f}"
    suites = Element("testsuites")
    suite = SubElement(suites, "testsuite", {"name": f"sifmod test {data['module']}", "time": time})
    suite.attrib |= {name: str(number) for name, number in numbers.items()} | {"hostname": ",".join(data["nodes"])}
    for step in steps:
        names = {"classname": data["module"].replace(".", "_"), "name": step["name"], "time": f"{step['seconds']:.3f}"}
        case = SubElement(suite, "testcase", names)
        match step["outcome"]:
            case "failed":
                failure = SubElement(case, "failure", {"message": _written(step["text"]), "type": "failed"})
                failure.text = _written("\n".join((step["text"], *step["said"], step["hint"] or "")))
            case "skipped":
                SubElement(case, "skipped", {"message": _written(step["text"])})
            case "passed":
                SubElement(case, "system-out").text = _written(step["text"])
    indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suites, encoding="unicode")}\n'


def _written(text: str) -> str:
    """A text of characters that XML 1.0 has."""
    from sifmod.system import harmless

    return harmless(text).translate({0xFFFE: "?", 0xFFFF: "?"})
