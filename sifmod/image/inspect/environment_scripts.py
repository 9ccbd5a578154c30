"""The variables that a SIF's environment scripts would export in a runtime's shell, read without starting one.

Statements that are not understood are skipped and reported: values computed by commands, conditions, loops.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sifmod.image.convert.metadata.start_scripts import IMAGE_ENVIRONMENT
from sifmod.image.inspect.shell_statements import Statement, effects, is_name, rough_tokens, statements
from sifmod.image.inspect.shell_words import NotUnderstoodError, Part, Unknown, Variable, Word
from sifmod.image.printable import line

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # the runtimes'
LONGEST = 1 << 17  # bytes of a variable that Linux takes
_DEFINITION = "90-environment.sh"
_MOST_WORK = 1 << 24  # letters of all values
# the variables that a shell has by itself: a script may set the first ones; the shell sets all others again
_CALLERS = frozenset(("HOME", "OLDPWD", "HOSTNAME", "IFS"))
_OWN = frozenset(("PWD", "OPTIND", "OPTARG", "UID", "EUID", "GID", "PPID", "RANDOM", "SECONDS", "LINENO", "SHLVL", "_"))
_BY_THE_BASE = frozenset(("PATH", "LD_LIBRARY_PATH", "PS1"))  # 99-base.sh exports them


@dataclass(frozen=True)
class ScriptedEnvironment:
    """The exported variables with known values, the names of those with unknown values, and what could not be read."""

    variables: Mapping[str, str]
    left_out: tuple[str, ...]
    computed: frozenset[str]  # the names in `left_out` whose value has the output of a command in it
    unread: tuple[str, ...]  # names of scripts, and commands as written, whose effect is unknown
    does_nothing: bool  # the scripts have no statement, except those that set the variables of an OCI image

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user: what is left out, and what could not be read."""
        named = ", ".join(self.left_out)
        first = (f"left out of the environment, because only a shell can compute them: {named}",) if named else ()
        read = "; ".join(self.unread)
        return (*first, *((f"the effect on the environment is unknown: {read}",) if read else ()))


def read_scripts(scripts: Mapping[str, str | None], config: Mapping[str, str]) -> ScriptedEnvironment:
    """The environment by `scripts` (name: text, or None if too long); `config` has the OCI image's exact variables."""
    state = _ScriptState(dict(config), {*config, *_BY_THE_BASE})
    does_nothing = True
    for name, script in sorted(scripts.items()):
        if name == IMAGE_ENVIRONMENT and config:
            state.add_default_path()
            continue
        if name == _DEFINITION and "PATH" not in state.values:
            state.add_default_path()
        if script is None:
            does_nothing, state.uncertain = False, True
            state.unread.append(name)
            continue
        try:
            for statement in statements(script):
                does_nothing = does_nothing and name == IMAGE_ENVIRONMENT
                if not state.run(statement):
                    break
        except (NotUnderstoodError, RecursionError):
            does_nothing = False
            state.lose(rough_tokens(script))
            state.unread.append(name)
        if name == IMAGE_ENVIRONMENT:
            state.add_default_path()
    if not state.path_is_set:
        state.values = {
            name: config.get(name, value) if name == "PATH" else value for name, value in state.values.items()
        }
        if "PATH" not in config:
            state.values.pop("PATH", None)
    for name in ("PATH", "LD_LIBRARY_PATH"):  # the runtimes treat an empty one as unset
        if state.values.get(name) == "":
            del state.values[name]
    names = state.exported | (state.unknown if state.all_exported else set())
    return ScriptedEnvironment(
        {name: value for name, value in state.values.items() if name in names},
        tuple(sorted(name for name in state.unknown if name in names)),
        frozenset(state.computed & state.unknown & names),
        tuple(dict.fromkeys(line(text, 80) for text in state.unread)),
        does_nothing,
    )


@dataclass
class _ScriptState:
    """The state of a shell that reads one script after the other. No name is in both `values` and `unknown`."""

    values: dict[str, str]
    exported: set[str]
    unknown: set[str] = field(default_factory=set)
    computed: set[str] = field(default_factory=set)
    readonly: set[str] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)
    uncertain: bool = False  # it is unknown whether further statements are run, and how
    all_exported: bool = False
    path_is_set: bool = False  # by a script, and not by the runtime alone
    work: int = 0

    def add_default_path(self) -> None:
        """Set PATH as the runtimes do, which append missing directories."""
        if "PATH" in self.unknown:
            return
        before = [one for one in self.values.get("PATH", "").split(":") if "PATH" in self.values]
        places = [*before, *(one for one in DEFAULT_PATH.split(":") if one not in before)]
        self.values["PATH"] = ":".join(places)
        self.exported.add("PATH")

    def run(self, statement: Statement) -> bool:
        """Apply a statement; False if it ends its script."""
        words = statement.words
        if not words:
            self.lose(statement.tokens)
            return True
        command = words[0].text
        if words[0].name and all(word.name for word in words):
            for word in words:
                self.assign(word)
        elif command in ("export", "readonly") and not any(word.text.startswith("-") for word in words):
            self.declare(command, words[1:])
        elif command == "unset" and all(is_name(word.text) for word in words[1:]):
            for word in words[1:]:
                self.unset(word.text)
        elif command == "return":
            return False
        else:  # a program changes no variable
            self.lose(statement.tokens)
        return True

    def declare(self, command: str, words: tuple[Word, ...]) -> None:
        for word in words:
            name = word.name or word.text
            if not is_name(name):  # `export $NAMES`
                self.lose((command, word.text))
                continue
            if word.name:
                self.assign(word)
            if command == "export":
                self.exported.add(name)
            else:
                self.readonly.add(name)

    def assign(self, word: Word) -> None:
        before: tuple[Part, ...] = (Variable(word.name),) if word.operator == "+=" else ()
        value = None if word.name in self.readonly or self.uncertain else self.value((*before, *word.value))
        if value is None or word.name in _OWN or "\0" in value:
            self.lose_name(word.name, computed=any(isinstance(part, Unknown) and part.command for part in word.value))
            for name in effects((word.text,)).names - {word.name}:  # `${NAME:=…}`
                self.lose_name(name)
            return
        self.path_is_set = self.path_is_set or word.name == "PATH"
        self.unknown.discard(word.name)
        self.values[word.name] = value

    def unset(self, name: str) -> None:
        if self.uncertain or name in self.readonly:
            self.lose_name(name)
            return
        self.unknown.discard(name)
        self.exported.discard(name)
        self.values.pop(name, None)

    def value(self, parts: tuple[Part, ...]) -> str | None:
        """The value of `parts` in a shell; None if it is unknown or too long."""
        texts = []
        for part in parts:
            text = part if isinstance(part, str) else None if isinstance(part, Unknown) else self.expanded(part)
            if text is None:
                return None
            texts.append(text)
            self.work += len(text)
            if self.work > _MOST_WORK:
                return None
        whole = "".join(texts)
        return whole if len(whole) <= LONGEST else None

    def expanded(self, variable: Variable) -> str | None:
        value = self.values.get(variable.name)
        name = variable.name
        if value is None and (name in self.unknown or name in _OWN or name in _CALLERS):
            return None
        there = bool(value) if variable.operator.startswith(":") else value is not None
        if variable.operator.endswith("-"):
            return value if there else self.value(variable.word)
        if variable.operator.endswith("+"):
            return self.value(variable.word) if there else ""
        return value or ""

    def lose(self, tokens: Iterable[str]) -> None:
        """Forget all variables that `tokens` may set."""
        words = tuple(tokens)
        may = effects(words)
        computed = any("$(" in word or "`" in word for word in words)
        for name in may.names:
            self.lose_name(name, computed=computed)
        self.exported |= may.exported
        self.unread += may.runs
        self.uncertain = self.uncertain or may.ends
        self.all_exported = self.all_exported or may.all_exported

    def lose_name(self, name: str, *, computed: bool = False) -> None:
        self.path_is_set = self.path_is_set or name == "PATH"
        self.values.pop(name, None)
        self.unknown.add(name)
        if computed:
            self.computed.add(name)
