"""Evaluate Lua's expressions while they are parsed: all of Lua 5.1 are accepted; what modulefiles use has a value."""

import re
from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sifmod.imports.lua_tokens import Token, number
from sifmod.imports.lua_values import (
    HOLE,
    MAYBE,
    SOMEWHERE,
    Default,
    Environment,
    Made,
    Question,
    Skipped,
    Table,
    Term,
    Value,
    certain,
    equal,
    is_certain,
    joined,
    text_of,
    truth,
)
from sifmod.imports.result import Budget, CannotImportError
from sifmod.secret import cut

# binary operators but `or` and `and`, from the loosest to the tightest
_BINARY = (("<", ">", "<=", ">=", "~=", "=="), ("..",), ("+", "-"), ("*", "/", "%"), ("^",))
_CONSTANTS = {"nil": None, "true": True, "false": False}
_COMMANDS = ("set_shell_function", "set_alias")  # each word of these may have its own condition


@dataclass
class Expressions(ABC):
    """The place in a file's tokens, and the values of its variables there."""

    tokens: tuple[Token, ...]
    budget: Budget
    variables: ChainMap[str, Value]  # of the innermost block first
    given: frozenset[str]
    at: int = 0
    calls: list[Made] = field(default_factory=list)
    skipping: Skipped | None = None  # then nothing is evaluated
    sure: bool = True
    under: tuple[Question, ...] = ()
    asked: list[Question] = field(default_factory=list)  # tests in the expression that is being evaluated

    @contextmanager
    def skip(self) -> Iterator[Skipped]:
        """Read, and evaluate nothing."""
        outside, self.skipping = self.skipping, Skipped(len(self.variables.maps))
        yield self.skipping
        self.skipping = outside

    def peek(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        self.budget.step()
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def is_at(self, *texts: str) -> bool:
        """Whether the next token is one of these words or signs."""
        return self.peek().kind in ("word", "sign") and self.peek().text in texts

    def accept(self, *texts: str) -> bool:
        if not self.is_at(*texts):
            return False
        self.next()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.refused(f"expected {text}, got {cut(self.peek().text, 40) or 'the end'}")

    def refused(self, why: str, line: int = 0) -> CannotImportError:
        line = line or self.peek().line
        return CannotImportError(f"line {line}: not Lua: {why}", line=line)

    def expressions(self) -> tuple[Value, ...]:
        found = [self.expression()]
        while self.accept(","):
            found.append(self.expression())
        return tuple(found)

    def expression(self) -> Value:
        with self.budget.level():
            return self._either("or", lambda: self._either("and", self._chain))

    def _either(self, word: str, operand: Callable[[], Value]) -> Value:
        """The value of operands with `or` or `and` between them; those behind the deciding one are skipped."""
        value, variable = operand(), ""
        while self.accept(word):
            holds = truth(value)
            if holds is None or holds is (word == "or"):
                with self.skip():
                    operand()
            else:
                variable = value.name if isinstance(value, Environment) else variable
                value = operand()
        return Default(value, variable, whole=True) if variable and type(value) is str else value

    def _chain(self, tightness: int = 0) -> Value:
        if tightness == len(_BINARY):
            return self._unary()
        values = [self._chain(tightness + 1)]
        operators = set()
        while self.is_at(*_BINARY[tightness]):
            operators.add(self.next().text)
            values.append(self._chain(tightness + 1))
        if not operators:
            return values[0]
        if operators == {".."} and self.skipping is None:
            texts = [text_of(value) for value in values]
            self.budget.letters(sum(map(len, texts)))
            return joined(tuple(values), "".join(texts))
        if operators in ({"=="}, {"~="}) and len(values) == 2:
            return equal(values[0], values[1], operators == {"=="})
        return HOLE

    def _unary(self) -> Value:
        with self.budget.level():
            if self.accept("not"):
                holds = truth(self._unary())
                return HOLE if holds is None else not holds
            if self.accept("-", "#"):
                with self.skip():
                    self._unary()
                return HOLE
            term = self.term()
        if not term.name:
            return term.value
        return HOLE if self.skipping or "." in term.name else self._seen(self.variables.get(term.name))

    def term(self) -> Term:
        """A value with its indices and calls; what is indexed or called by no name has no effect."""
        calls, asked = len(self.calls), len(self.asked)
        found = self._primary()
        while True:
            line, name = self.peek().line, found.name
            if not (self._has_arguments() or self.is_at(".", "[", ":")):
                return found
            if name and self.accept("."):
                found = Term(f"{name}.{self.next().text}"[:200])
            elif name and self._has_arguments():
                found = self._call(name, line)
            else:
                with self.skip():
                    found = Term(what=self._suffix())
                del self.calls[calls:], self.asked[asked:]

    def _suffix(self) -> str:
        """What an index or a call makes of a value."""
        if self.accept("."):
            self.next()
        elif self.accept("["):
            self.expression()
            self.expect("]")
        else:
            method = self.accept(":") and self.next()
            self._arguments()
            return "a method call" if method else "a call"
        return "an index of a table"

    def _has_arguments(self) -> bool:
        return self.peek().kind == "text" or self.is_at("(", "{")

    def _arguments(self) -> tuple[Value, ...]:
        if self.accept("("):
            given = () if self.is_at(")") else self.expressions()
            self.expect(")")
            return given
        return (self._primary().value,)

    def _primary(self) -> Term:
        token = self.next()
        match token.kind:
            case "name":
                return Term(token.text)
            case "text":
                return Term(value=token.text)
            case "number":
                return Term(value=number(token.text.lower()))
            case "word" if token.text in _CONSTANTS:
                return Term(value=_CONSTANTS[token.text])
            case "word" if token.text == "function":
                self.function_body()
                return Term(what="a function definition")
            case "sign" if token.text == "(":
                inner = self.expression()
                self.expect(")")
                return Term(value=inner)
            case "sign" if token.text == "{":
                return Term(value=self._table())
            case "sign" if token.text == "...":
                return Term(what="the arguments of the file")
        raise self.refused(f"unexpected {cut(token.text, 40) or 'end'}", token.line)

    def function_body(self) -> None:
        """Skip the parameters and the body of a function."""
        with self.skip():
            self.expect("(")
            while not self.accept(")"):
                if self.next().kind == "end":
                    self.expect(")")
            self.block("end")
            self.expect("end")

    @abstractmethod
    def block(self, *ends: str) -> None:
        """Read statements up to one of the words `ends`."""

    def _table(self) -> Table:
        table = Table([])
        while not self.accept("}"):
            name: Value = None
            named = True
            if self.accept("["):
                name = self.expression()
                self.expect("]")
                self.expect("=")
            elif self.peek().kind == "name" and self.tokens[self.at + 1][:2] == ("sign", "="):
                name = self.next().text
                self.next()
            else:
                named = False
            value = self.expression()
            if not named:
                table.items.append(value)
            elif value is not None:
                table.named.append((name, value))
            if not self.accept(",", ";"):
                self.expect("}")
                break
        return table

    def marked(self, value: Value) -> Value:
        """The value; a text is marked with MAYBE if it depends on a condition that only a run could decide."""
        return MAYBE + value if isinstance(value, str) and not self.sure else value

    def _seen(self, value: Value) -> Value:
        """The value as it is used, SOMEWHERE for a variable of `given`; records the use of an environment variable."""
        name = value.name if isinstance(value, Environment) else value.variable if isinstance(value, Default) else ""
        if name:
            self.asked.append(Question("os.getenv", name))
        return SOMEWHERE if name in self.given else value

    def _call(self, function: str, line: int) -> Term:
        of_a_table = self.is_at("{") or (self.is_at("(") and self.tokens[self.at + 1][:2] == ("sign", "{"))
        given = written = self._arguments()
        if self.skipping:
            return Term(function=function, line=line)
        table = given[0] if len(given) == 1 else None
        if of_a_table and isinstance(table, Table) and not function.startswith("table."):
            # prepend_path{"PATH", "/x", delim=";"}
            given = (*table.items, *(value for name, value in table.named if name == "delim"))
        arguments, sure = given, self.sure
        if function not in _COMMANDS:
            arguments = tuple(map(certain, given))
            sure = sure and all(map(is_certain, given))
        self.calls.append(Made(function, arguments, line, sure, self.under))
        return Term("", self._result(function, given), function, written, line)

    def _result(self, function: str, given: tuple[Value, ...]) -> Value:
        texts = [text_of(value) for value in given]
        self.budget.letters(sum(map(len, texts)))
        match function:
            case "os.getenv" if texts:
                return self._seen(Environment(texts[0]))
            case "mode":
                return "load"
            case "myModuleName":
                return self.variables["_name"]
            case "myModuleVersion":
                return self.variables["_version"]
            case "myModuleFullName":
                return f"{self.variables['_name']}/{self.variables['_version']}"
            case "isloaded" | "isFile" | "isDir":
                found = any(SOMEWHERE in text for text in texts)
                if not found:
                    self.asked.append(Question(function))
                return found
            case "pathJoin":
                self.budget.letters(sum(map(len, texts)) + len(texts))
                return joined(given, re.sub("/{2,}", "/", "/".join(texts)))
            case "tostring" | "string.lower" if texts:
                return texts[0].lower() if function == "string.lower" else texts[0]
            case "table.concat" if given and isinstance(given[0], Table):
                parts = [text_of(item) for item in given[0].items]
                separator = texts[1] if len(texts) > 1 else ""
                self.budget.letters(sum(len(part) + len(separator) + 1 for part in parts))
                return separator.join(parts)
            case "table.insert" if len(given) > 1 and isinstance(given[0], Table):
                self.budget.step()
                items, place = given[0].items, given[1]
                first = len(given) > 2 and isinstance(place, int) and 1 <= place <= len(items)
                items.insert(place - 1 if first and isinstance(place, int) else len(items), self.marked(given[-1]))
                return None
        return HOLE
