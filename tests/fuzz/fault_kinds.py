"""The kinds of faults: what a tired colleague leaves out, swaps, or is off by one in.

One table of regular expressions, for Python and for templates; a fault stands in one line or swaps two. Strings of
Python, comments and definitions are left alone, and whatever does not compile is no fault.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

# words of a name whose values often coincide in a test, or of which only one is tested
PAIRS = "lua tcl,message hint,arch variant,bus algorithm,uid gid,size mtime,before after,first last,lower upper"
PAIRS += ",source target,stdout stderr,min max,any all,stat lstat,left right,prefix root"
# functions and methods that make a value safe or regular
SAFE = "shell|lua|tcl|literal|escape|quote|sorted|abs|unquote|normpath|basename|realpath|escape_controls|redact"
REGULAR = "strip|lower|upper|casefold|resolve|absolute|expanduser"
ITEM = r"[^()\[\]{},]+"
COMPARED = "< <=,> >=,== !=,== ~=,eq ne,-lt -le,-gt -ge,-eq -ne,-e -d,-n -z,-O -e,-f -e,&& ||,and or"

OTHER = "the other of a pair"
KINDS = [
    ("a check never holds", r"(?<=\bif )(?!\[)(.+)(?=:$)", r"False and (\1)"),
    ("a condition is negated", r"(?<=\bif )(?!not |\[|\{)(.+?)(?=:$| else | then$|\]$| %\})", r"not (\1)"),
    ("a condition is negated", r"(?<=\bwhile )(?!not |\[)(.+)(?=:$| do$)", r"not (\1)"),
    ("a condition is negated", r"\bnot (?!in )|(?<=\[ )! |(?<=\{)!", ""),
    ("a condition is negated", r"(?<=if \[ )(?!!)|(?<=if \{)(?=\[)", "! "),
    ("a part is dropped", r" (and|or|&&|\|\|) .+?(?= and | or | && | \|\| |:$|; then|\]?\)|,|$)", ""),
    ("a part is dropped", r"(?<=if |rn )[^()]+? (and|or) ", ""),
    ("a part is dropped", r" [-+&] [\w.]+(?=[\s)\],]|$)| \| \w+\.[A-Z_]+", ""),
    ("off by one", r"(?<![\w.$\"])0(?=[\]:) ]|$)", "1"),
    ("off by one", r"(?<![\w.$\"])1(?=[\]:) ]|$)", "0"),
    ("an item is dropped", rf"(?<![\w)\]])([(\[{{]){ITEM}, ({ITEM}(?:, {ITEM})*[)\]}}])", r"\1\2"),
    ("an item is dropped", rf"(?<![\w)\]])([(\[{{]{ITEM}(?:, {ITEM})*), {ITEM}([)\]}}])", r"\1\2"),
    ("an item is dropped", r"^ +\"[^\"]+\"(: .+)?,$", ""),
    ("an argument is dropped", rf", \w+={ITEM}(?=[),])", ""),
    ("an argument is dropped", r"^ +\w+=.+,$", ""),
    ("two arguments are swapped", r"(?<=\()([\w.]+), ([\w.]+)(?=\))", r"\2, \1"),
    ("a hint is dropped", r", f?\"[^\"]*\"(?=\)$)", ""),
    ("a caught error is dropped", r"(?<=except )[\w.]+(?=:| as)", "()"),
    ("what is around it is dropped", rf"\b(\w+\.)?({SAFE})(?=\()|\.({REGULAR})\(\)", ""),
    ("what is around it is dropped", r" \| (shell|quote|lua|tcl|here\(root\))(?=[ )])", ""),
    ("quotes are dropped", r"\"(\$\{?[\w@:-]+\}?)\"", r"\1"),
    ("another call", r"\bshlex\.join\b", "' '.join"),
    ("another call", r"\.(?:starts|ends)with(?=\()", ".__eq__"),
    ("another mode", r"\b0o[0-7]+", "0o666"),
    ("another mode", r"(?<=chmod )[0-7]+|(?<=umask )[0-7]+", "000"),
]
for _two in (pair.split(maxsplit=1) for pair in COMPARED.split(",")):
    KINDS += [("a comparison is swapped", f" {re.escape(a)} ", f" {b} ") for a, b in (_two, _two[::-1])]
for _two in (pair.split() for pair in PAIRS.split(",")):
    KINDS += [(OTHER, rf"(?<![a-zA-Z]){a}(?![a-z])", b) for a, b in (_two, _two[::-1])]
PYTHON = [(" is not ", " is "), (" is (?!not)", " is not "), (" not in ", " in "), ("(?<!not) in ", " not in ")]

COMMENTS = ("#", "--", "//", "/*", "{#", "<!--")
DEFINITION = re.compile(r"\s*((async )?def|class|import|from|@|assert|type)\b|[A-Za-z_]+: ")
# a statement that changes something which is there without it too
STEP = re.compile(r"\s+(yield from |await )?[\w.]+(\(.*\)|\[.*\] [-+|]?= .+|\.\w+ [-+|]?= .+| [-+|]= .+)$")
# what opens, closes or goes on, in a template
FRAME = re.compile(r"\s*((if|then|else\w*|elif|fi|for|while|do|done|case|esac|end|local|function|proc|return)\b|\W)")
GOES_ON = ("\\", ",", ";;", "&&", "||", "|", "do", "then", "{", "(")


@dataclass(frozen=True)
class Fault:
    """Characters `start` to `end` of the file at `path` become `after`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    after: str

    def put_into(self, text: str) -> str:
        """The file with the fault in it."""
        return text[: self.start] + self.after + text[self.end :]

    def names_another(self, text: str) -> bool:
        """Whether the name that this makes is used elsewhere in the file."""
        before, after = re.findall(r"\w*\Z", text[: self.start])[0], re.findall(r"\A\w*", text[self.end :])[0]
        return re.search(rf"\b{before}{self.after}{after}\b", text) is not None

    def is_fault(self, text: str) -> bool:
        """Whether the file with it is a program, and another one."""
        if not self.path.endswith(".py"):
            return text != self.put_into(text)
        try:
            return ast.dump(ast.parse(text)) != ast.dump(ast.parse(self.put_into(text)))
        except SyntaxError:
            return False


def faults_of(path: str, text: str) -> Iterator[Fault]:
    """Every fault that this file can have."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    python = path.endswith(".py")
    left_alone = _left_alone(text, starts) if python else set()
    steps: list[int] = []
    for number, line in enumerate(lines):
        code, start = line.rstrip("\n") if python else re.split(r"\s+(?:--|#) |\n", line)[0], starts[number]
        if not code.strip() or code.lstrip().startswith(COMMENTS) or (python and DEFINITION.match(code)):
            continue
        for kind, before, after in KINDS + [("a comparison is swapped", *each) for each in PYTHON if python]:
            for match in re.finditer(before, code):
                fault = Fault(path, number + 1, kind, start + match.start(), start + match.end(), match.expand(after))
                if fault.start not in left_alone and (kind != OTHER or fault.names_another(text)):
                    yield fault
        if _is_step(code, python) and start not in left_alone:
            steps.append(number)
            indent = len(code) - len(code.lstrip())
            nothing = "pass" if python else "" if path.endswith((".lua", ".tcl", ".j2", ".js", ".css")) else ":"
            yield Fault(path, number + 1, "a step is dropped", start + indent, start + len(code), nothing)
    for one, two in pairwise(steps):
        if two == one + 1 and len(lines[one]) - len(lines[one].lstrip()) == len(lines[two]) - len(lines[two].lstrip()):
            yield Fault(path, one + 1, "two steps are swapped", starts[one], starts[two + 1], lines[two] + lines[one])


def _is_step(code: str, python: bool) -> bool:
    if python:
        return STEP.match(code) is not None
    whole = all(code.count(a) == code.count(b) for a, b in ("()", "[]", "{}")) and code.count("'") % 2 == 0
    return whole and code.count('"') % 2 == 0 and not FRAME.match(code) and not code.endswith(GOES_ON)


def _left_alone(text: str, starts: list[int]) -> set[int]:
    """The places of strings and comments of Python, but for what is formatted into one (from Python 3.12 on)."""
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    found: set[int] = set()
    for each in tokenize.generate_tokens(io.StringIO(text).readline):
        if each.type in kinds:
            found.update(range(starts[each.start[0] - 1] + each.start[1], starts[each.end[0] - 1] + each.end[1]))
    return found
