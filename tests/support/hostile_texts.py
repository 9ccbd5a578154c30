"""Texts that mean something to an interpreter."""

SIGNS = "[]{}()=\"'\\$`;#\n\r\t %*?~!&|<>-/ax\x1a\x7fé😀"
# each of them was read as something else than text by one language or another
KNOWN = [
    *("]==]", "]=]]==]]", "x]==", "x]", "\n]==", "\n[[", "\n]==]", "\n]==]]===]", "\n", "a\nb"),
    *("$(touch x)", "`touch x`", "[exec touch x]", "'", '"', "\\", "\\\n", "a\\", "a\\\nb", "%d"),
    *("{", "}", "}{", "{}", "{*}", "*", "{\n}", "}\n{", "#", "# x", "-n", "a=b", "=", "~", "", " "),
    *("\r\n", "\r", "\x1a", "\x7f", "é😀\x85\u2028", "\ufeff", "\x01\x002"[:1] + "9"),
]
