# SPDX-License-Identifier: Apache-2.0
"""errors.py SOURCE COMMAND...: the command, which compiles the source, must fail so: each line of the
source that ends in `// error: text` causes errors, the first of which contains the text, and no other
line causes one. A line causes an error that is on it, or behind `required from here` on it; so g++
says it."""
import re
import subprocess
import sys

source, command = sys.argv[1], sys.argv[2:]
expected = {}
with open(source, encoding="utf-8") as text:
    for number, line in enumerate(text, 1):
        if found := re.search(r"// error: (.*)$", line):
            expected[number] = found[1]

output = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                        errors="replace").stderr
first, cause = {}, 0
for line in output.splitlines():
    # The last word of `file: In function` and `file: In instantiation of` begins another context.
    if re.match(r"\S+: (In|At) ", line):
        cause = 0
    if place := re.match(re.escape(source) + r":(\d+):", line):
        cause = int(place[1])
    if re.match(r"\S+?: (fatal )?error: ", line):
        first.setdefault(cause, line)

wrong = [f"line {number}: expected \"{text}\", but the first error is: {first.get(number, 'none')}"
         for number, text in expected.items() if text not in first.get(number, "")]
wrong += [f"line {number or '?'}, where none is expected: {error}"
          for number, error in first.items() if number not in expected]
if wrong or not expected:
    sys.exit("\n".join([*wrong, f"{len(expected)} errors are expected", output]))
