"""Lua's statements: the whole grammar is read, the part that modulefiles are made of is kept."""

from sifmod.imports.budget import Budget, CannotImportError
from sifmod.imports.lua_expression import Expressions
from sifmod.imports.lua_syntax import (
    Assign,
    Call,
    Constant,
    Expression,
    ForEach,
    If,
    Name,
    Other,
    Skipped,
    Statement,
    Token,
    sets,
)


def parse(found: tuple[Token, ...], budget: Budget) -> tuple[Statement, ...]:
    """The statements of a file; raises CannotImportError for what is not Lua or nested too deep."""
    parser = _Statements(found, budget)
    block = parser.block()
    parser.expect("")
    return block


class _Statements(Expressions):
    def block(self, *ends: str) -> tuple[Statement, ...]:
        found: list[Statement] = []
        with self.budget.level():
            while self.peek().kind != "end" and not (self.peek().kind == "word" and self.peek().text in ends):
                self.budget.step()
                if not self.accept(";"):
                    found.append(self.statement())
        return tuple(found)

    def statement(self) -> Statement:
        token = self.peek()
        if token.kind != "word":
            return self.assignment_or_call()
        match self.next().text:
            case "if":
                return self.conditional()
            case "for":
                return self.loop(token.line)
            case "do":
                inner = self.block("end")
                self.expect("end")
                return If(((Constant(True), inner),), ())
            case "while" | "repeat" as word:
                return self.unbounded(word, token.line)
            case "function":
                name = self.next().text
                while self.accept(".", ":"):
                    name = f"{name}.{self.next().text}"[:200]
                self.function_body()
                return Skipped("a function of its own", (name,), token.line)
            case "local":
                return self.local(token.line)
            case "return" | "break":
                if not (self.peek().kind == "end" or self.peek().text in ("end", "else", "elseif", "until", ";")):
                    self.expressions()
                return Skipped(f"the end of what runs ({token.text})", (), token.line)
        raise CannotImportError(f"line {token.line}: not Lua: unexpected {token.text}")

    def local(self, line: int) -> Statement:
        if self.accept("function"):
            name = self.next().text
            self.function_body()
            return Skipped("a function of its own", (name,), line, local=True)
        return Assign(self.names(), self.expressions() if self.accept("=") else (), local=True)

    def assignment_or_call(self) -> Statement:
        line = self.peek().line
        targets = [self.suffixed()]
        while self.accept(","):
            targets.append(self.suffixed())
        if self.accept("="):
            names = tuple(target.name for target in targets if isinstance(target, Name))
            values = self.expressions()
            if len(names) < len(targets):
                return Skipped("such an assignment", names, line)
            return Assign(names, values, local=False)
        if isinstance(targets[0], Call):
            return targets[0]
        if isinstance(targets[0], Other):
            return Skipped(targets[0].what, (), line)
        raise CannotImportError(f"line {line}: not Lua: a statement is expected")

    def conditional(self) -> If:
        branches: list[tuple[Expression, tuple[Statement, ...]]] = []
        otherwise: tuple[Statement, ...] = ()
        while True:
            condition = self.expression()
            self.expect("then")
            branches.append((condition, self.block("elseif", "else", "end")))
            if self.accept("elseif"):
                continue
            if self.accept("else"):
                otherwise = self.block("end")
            self.expect("end")
            return If(tuple(branches), otherwise)

    def loop(self, line: int) -> Statement:
        names = self.names()
        counted = self.accept("=")
        if not counted:
            self.expect("in")
        over = self.expressions()
        self.expect("do")
        loop = ForEach(names, over[0], self.block("end"))
        self.expect("end")
        return Skipped("a loop", sets((loop,)), line) if counted or len(over) != 1 else loop

    def unbounded(self, word: str, line: int) -> Skipped:
        if word == "while":
            self.expression()
            self.expect("do")
        body = self.block("end" if word == "while" else "until")
        self.expect("end" if word == "while" else "until")
        if word == "repeat":
            self.expression()
        return Skipped("a loop", sets(body), line)
