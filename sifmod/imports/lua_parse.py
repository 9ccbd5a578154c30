"""Parse Lua: all statements and expressions of Lua 5.1 are accepted, those that modulefiles use are kept."""

from contextlib import nullcontext

from sifmod.imports.lua_syntax import (
    Assign,
    Call,
    Chain,
    Constant,
    Expression,
    ForEach,
    If,
    Items,
    Name,
    Other,
    Skipped,
    Statement,
    Token,
    sets,
)
from sifmod.imports.result import Budget, CannotImportError

# binary operators, from the loosest to the tightest
_BINARY = (("or",), ("and",), ("<", ">", "<=", ">=", "~=", "=="), ("..",), ("+", "-"), ("*", "/", "%"), ("^",))
_CONSTANTS = {"nil": None, "true": True, "false": False}


class _Parser:
    """Parses a file's tokens into statements and expressions."""

    def __init__(self, found: tuple[Token, ...], budget: Budget) -> None:
        self.tokens = found
        self.at = 0
        self.budget = budget

    def peek(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def accept(self, *texts: str) -> bool:
        token = self.peek()
        if token.kind in ("word", "sign") and token.text in texts:
            self.next()
            return True
        return False

    def expect(self, text: str) -> None:
        token = self.peek()
        if (text == "" and token.kind == "end") or (text and self.accept(text)):
            return
        raise CannotImportError(
            f"line {token.line}: not Lua: expected {text or 'the end'}, got {token.text[:40] or 'the end'}",
            line=token.line,
        )

    def names(self) -> tuple[str, ...]:
        found = [self.next().text]
        while self.accept(","):
            found.append(self.next().text)
        return tuple(found)

    def function_body(self) -> None:
        self.expect("(")
        while not self.accept(")"):
            if self.next().kind == "end":
                self.expect(")")
        self.block("end")
        self.expect("end")

    def expressions(self) -> tuple[Expression, ...]:
        found = [self.expression()]
        while self.accept(","):
            found.append(self.expression())
        return tuple(found)

    def expression(self, tightness: int = 0) -> Expression:
        if tightness == len(_BINARY):
            return self.unary()
        with self.budget.level() if tightness == 0 else nullcontext():
            self.budget.step()
            operands = [self.expression(tightness + 1)]
            operators = set()
            while self.peek().kind in ("word", "sign") and self.peek().text in _BINARY[tightness]:
                operators.add(self.next().text)
                operands.append(self.expression(tightness + 1))
        if not operators:
            return operands[0]
        return Chain(operators.pop(), tuple(operands)) if len(operators) == 1 else Other("a calculation")

    def unary(self) -> Expression:
        with self.budget.level():
            if self.accept("not"):
                return Chain("not", (self.unary(),))
            if self.accept("-", "#"):
                self.unary()
                return Other("a calculation")
            return self.suffixed()

    def suffixed(self) -> Expression:
        found = self.primary()
        while True:
            line = self.peek().line
            if self.accept("."):
                part = self.next().text
                found = Name(f"{found.name}.{part}"[:200]) if isinstance(found, Name) else Other("an index of a table")
            elif self.accept("["):
                self.expression()
                self.expect("]")
                found = Other("an index of a table")
            elif self.accept(":"):
                self.next()
                self.arguments()
                found = Other("a method call on a text")
            elif self.peek().kind == "text" or (self.peek().kind == "sign" and self.peek().text in ("(", "{")):
                given = self.arguments()
                found = Call(found.name, given, line) if isinstance(found, Name) else Other("a call")
            else:
                return found

    def arguments(self) -> tuple[Expression, ...]:
        if self.accept("("):
            given = () if self.peek().text == ")" and self.peek().kind == "sign" else self.expressions()
            self.expect(")")
            return given
        return (self.primary(),)

    def primary(self) -> Expression:
        token = self.next()
        match token.kind:
            case "name":
                return Name(token.text)
            case "text":
                return Constant(token.text)
            case "number":
                return Constant(_number(token.text.lower()))
            case "word" if token.text in _CONSTANTS:
                return Constant(_CONSTANTS[token.text])
            case "word" if token.text == "function":
                self.function_body()
                return Other("a function definition")
            case "sign" if token.text == "(":
                inner = self.expression()
                self.expect(")")
                return inner
            case "sign" if token.text == "{":
                return self.table()
            case "sign" if token.text == "...":
                return Other("the arguments of the file")
        raise CannotImportError(f"line {token.line}: not Lua: unexpected {token.text[:40] or 'end'}", line=token.line)

    def table(self) -> Items:
        values: list[tuple[Expression | None, Expression]] = []
        while not self.accept("}"):
            self.budget.step()
            name: Expression | None = None
            if self.accept("["):
                name = self.expression()
                self.expect("]")
                self.expect("=")
            elif self.peek().kind == "name" and self.tokens[self.at + 1][:2] == ("sign", "="):
                name = Constant(self.next().text)
                self.next()
            values.append((name, self.expression()))
            if not self.accept(",", ";"):
                self.expect("}")
                break
        return Items(tuple(values))

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
                return Skipped("a function definition", (name,), token.line)
            case "local":
                return self.local(token.line)
            case "return" | "break":
                if not (self.peek().kind == "end" or self.peek().text in ("end", "else", "elseif", "until", ";")):
                    self.expressions()
                return Skipped(f"the end of execution ({token.text})", (), token.line)
        raise CannotImportError(f"line {token.line}: not Lua: unexpected {token.text}", line=token.line)

    def local(self, line: int) -> Statement:
        if self.accept("function"):
            name = self.next().text
            self.function_body()
            return Skipped("a function definition", (name,), line, local=True)
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
                return Skipped("this kind of assignment", names, line)
            return Assign(names, values, local=False)
        if isinstance(targets[0], Call):
            return targets[0]
        if isinstance(targets[0], Other):
            return Skipped(targets[0].what, (), line)
        raise CannotImportError(f"line {line}: not Lua: expected a statement", line=line)

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


def _number(text: str) -> float:
    """The value of a number: an int for a hexadecimal one and an integer of up to 18 digits, else a float."""
    if text.startswith("0x"):
        return int(text, 16)
    return int(text) if text.isdecimal() and len(text) < 19 else float(text)


def parse(found: tuple[Token, ...], budget: Budget) -> tuple[Statement, ...]:
    """The statements of a file; raises CannotImportError for invalid Lua or deep nesting."""
    parser = _Parser(found, budget)
    block = parser.block()
    parser.expect("")
    return block
