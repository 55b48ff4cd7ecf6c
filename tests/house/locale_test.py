#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether text that programs read is made without the program's locale, whatever that is.

Usage: locale_test.py ROOT

It fails when a header, outside of base/text/c_locale.hpp and base/text/strict_stream.hpp,
- makes a string stream that is not within strict(...), which gives it C's locale,
- prints a floating-point number with a function of the printf family: detail::print() does, and console::say(),
- reads one with scanf, strtod or stod: std::from_chars does,
- classifies or converts letters with the locale's tolower() or toupper(): detail::lower() does,
- asks strftime() for the name of a day or a month.
"""
import pathlib
import re
import sys

EXCEPT = {"base/text/c_locale.hpp", "base/text/strict_stream.hpp"}
FLOAT = r"%[-+ #0]*[\d.*]*(?:l|L)?[aefgAEFG]"
RULES = {
    "a string stream without strict()": re.compile(r"(?<!strict\()std::[io]?stringstream\b(?! *&)"),
    "a number with a decimal point, printed in the locale":
        re.compile(r"(?:v|s|f|sn|vsn)printf\([^;]*\"[^;]*" + FLOAT),
    "a number read in the locale": re.compile(r"\b(?:strto(?:d|f|ld)|ato[fd]|sto(?:d|f|ld))\(|scanf\([^;]*" + FLOAT),
    "letters of the locale": re.compile(r"\b(?:tolower|toupper)\("),
    "names of the locale": re.compile(r"(?:strftime|put_time)\([^;]*%[aAbBcpxX]"),
}
BROKEN = ("std::ostringstream out;", 'std::snprintf(text, sizeof text, "%d %.1f", 1, x);', "std::stod(text)",
          "std::tolower(c)", 'std::strftime(date, sizeof date, "%b", &parts);')


def findings(text):
    text = re.sub(r"//[^\n]*", "", text)
    return [(text.count("\n", 0, match.start()) + 1, what)
            for what, rule in RULES.items() for match in rule.finditer(text)]


def main():
    for broken in BROKEN:
        assert findings(broken), f"not noticed: {broken}"
    top = pathlib.Path(sys.argv[1]) / "include/rtrain"
    found = [f"{path.relative_to(top)}:{line}: {what}" for path in sorted(top.rglob("*.hpp"))
             if str(path.relative_to(top)) not in EXCEPT for line, what in findings(path.read_text(encoding="utf-8"))]
    print("\n".join(found) or "no text depends on the locale")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
