#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the headers keep to the rooms of rooms.json, from which the table in docs/architecture.md is written.

Usage: rooms_test.py ROOT

A room is a directory under include/rtrain; of two that match a header, the longer counts. A header of
the root is in no room, so it has an entry of its own. "may include" is a list of rooms, or "all above". It fails when
- a header includes one of a room that the file does not allow,
- a directory has no room of its own, or more than 25 headers (a door and its definitions count as one),
- a header of ours includes a forwarding header: one that only includes a header of the same name in another
  directory, which keeps a path valid that programs include. These are in no room, and do not count,
- rooms that the file allows to include each other, or headers that do, or directories at some level with all that
  is below them, make a circle (definitions
  include their door, and the door them, for those who do not link rtrain::compiled),
- a header is in no room, or a room of the file holds none,
- definitions (x_definitions.hpp) have no door x.hpp that includes them at its end, or are included by another header:
  rtrain::compiled defines them, too; or a header of another name has definitions (RTRAIN_DOOR); or no file of
  cmake/compiled includes them: a program with rtrain::compiled would not link,
 - a *_format.hpp, a vendor's private format, is included by a header that is not its *_definitions.hpp,
 - a header that is not generated is longer than 400 lines, half of them than 150, or a function than 60,
 - a function has more than five parameters, except in extern "C" blocks: a struct with named members takes them,
- a header writes to the standard error itself, past console::say() and console::Screen,
- a namespace within rtrain has a namespace `detail` of its own: whoever includes it there could not say
  `detail::` for rtrain::detail any more, and would not compile if includes change places. `internal` will do.

Then it breaks each of these rules in a copy of the headers, and fails when it does not notice.
"""

import argparse
import collections
import functools
import json
import pathlib
import re
import shutil
import sys
import tempfile

ROOMS = "tests/house/rooms.json"
HEADERS = "include/rtrain"
LIBRARY = "cmake/compiled"
COMPILED = "base/compiled.hpp"
DEFINITIONS = "_definitions.hpp"
CONSOLE = ("base/console.hpp", "console/screen.hpp")
LONGEST, MEDIAN, LONGEST_FUNCTION, MOST_PARAMETERS, MOST_HEADERS = 400, 150, 60, 5, 25
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](?:rtrain/)?([^>"]+\.hpp)[>"]', re.MULTILINE)
DOOR = re.compile(r"^#ifndef RTRAIN_COMPILED\n(?:#include [^\n]*\n|//[^\n]*\n|\n)+#endif", re.MULTILINE)
FORWARDING = re.compile(r"(?://[^\n]*\n|\n)*#pragma once\n\s*#include <rtrain/([^>]+)>\s*")
WRITES = re.compile(r"fprintf\(\s*stderr|fputs\([^;]*\bstderr\)|std::(cerr|clog)\b|STDERR_FILENO,")
WORDS = re.compile(r"""//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""")
# What stands before the brace of a function's body, and not before that of a class or a block.
FUNCTION = re.compile(r"(?!(?:if|for|while|switch|else|catch|do|try|return|namespace|class|struct|enum|"
                      r"union)\b)[^=?]*\)[\s\w]*(?:->[^()]*|:[^:].*)?", re.DOTALL)
GENERATED = re.compile(r"^// Made by ", re.MULTILINE)
# Signatures that a C library prescribes.
FOREIGN = re.compile(r'^extern "C" \{\n.*?^\} // extern "C"', re.MULTILINE | re.DOTALL)
MACROS = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
CALLABLE = re.compile(r"(?<![\w.>])(?:operator\s*(?:\(\)|[^\s\w(]+)|~?[A-Za-z_]\w*)\s*\(")
# `const Type<...>& name = value`; an argument of a call is rarely two words.
PARAMETER = re.compile(r"(?:\[\[\w+\]\]\s*)?(?:const\s+)?[\w:]+(?:\s*<.*>)?(?:::\w+)*\s*(?:const\s*)?"
                       r"(?:(?:[*&]|\.\.\.)+\s*|\s)(?:const\s+)?\w+\s*(?:[={[].*)?", re.DOTALL)
SCOPES = re.compile(r"\bnamespace\s+([\w:]+)\s*\{|[{}]")
OURS = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(<rtrain/|")', re.MULTILINE)


def once_per_text(find):
    """`find` as a list, kept for each text: the copies of the negative controls differ in one header."""
    return functools.cache(lambda *arguments: list(find(*arguments)))


def read_table(root):
    """{room: rooms it may include}"""
    table = {}
    for entry in json.loads((root / ROOMS).read_text(encoding="utf-8")):
        allowed = entry["may include"]
        table[entry["room"]] = set(table) if allowed == "all above" else set(allowed)
    return table


def read_headers(root):
    """{path under include/rtrain: text}"""
    top = root / HEADERS
    return {str(path.relative_to(top)): path.read_text(encoding="utf-8")
            for path in sorted(top.rglob("*.hpp"))}


@once_per_text
def includes_of(header, text):
    """The headers of ours that `text` includes, as paths under include/rtrain."""
    found = []
    for match in INCLUDE.finditer(text):
        if not OURS.match(match.group(0)):
            continue
        name = match.group(1)
        if "<rtrain/" not in match.group(0):  # "x.hpp": beside the header
            name = str(pathlib.PurePosixPath(header).parent / name)
        found.append(name)
    return found


def is_forwarding(header, text):
    found = FORWARDING.fullmatch(text)
    return found is not None and found[1].split("/")[-1] == header.split("/")[-1]


def room_of(header, rooms):
    """The row that `header` belongs to, or None."""
    if header in rooms:
        return header
    directory = header
    while directory:
        directory = directory.rpartition("/")[0]
        if f"{directory}/" in rooms:
            return f"{directory}/"
    return None


def circle_in(arrows):
    """Some circle of a graph {node: nodes}, as a list that begins and ends with one node; else None."""
    done, way = set(), []

    def visit(node):
        if node in way:
            return way[way.index(node):] + [node]
        if node in done:
            return None
        way.append(node)
        for following in sorted(arrows.get(node, ())):
            circle = visit(following)
            if circle:
                return circle
        way.pop()
        done.add(node)
        return None

    for node in sorted(arrows):
        circle = visit(node)
        if circle:
            return circle
    return None


def circles_of_directories(arrows):
    """A circle of each level: of directories beside each other, and of the headers beside them as one."""
    levels = collections.defaultdict(lambda: collections.defaultdict(set))
    for header, others in arrows.items():
        for other in others - {header}:
            paths = header.split("/"), other.split("/")
            depth = next(at for at, parts in enumerate(zip(*paths)) if parts[0] != parts[1])
            low, high = ("/".join(path[:depth + 1] if len(path) > depth + 1 or depth == 0 else path[:depth])
                         for path in paths)
            if low != high:
                levels[tuple(paths[0][:depth])][low].add(high)
    return list(filter(None, map(circle_in, levels.values())))


def crowded_directories(headers):
    """(directory, headers) of each that has too many."""
    count = collections.Counter(header.rpartition("/")[0] + "/" for header in headers
                                if not is_definitions(header))
    return [(directory, number) for directory, number in count.items() if number > MOST_HEADERS]


def is_definitions(header):
    return header.endswith(DEFINITIONS)


def wrong_door(headers, header):
    """What is wrong with the door of `header`; empty if nothing is, or if it needs none."""
    if not is_definitions(header):
        return "" if header == COMPILED or "RTRAIN_DOOR" not in headers[header] else f"its name ends in {DEFINITIONS}"
    door = header.replace(DEFINITIONS, ".hpp")
    end = f"\n\n#ifndef RTRAIN_COMPILED\n#include <rtrain/{header}>\n#endif\n"
    return "" if headers.get(door, "").endswith(end) else f"{door} includes it at its end"


def not_compiled(root, headers):
    """The definitions that rtrain::compiled lacks."""
    compiled = {name for file in (root / LIBRARY).glob("*.cpp")
                for name in INCLUDE.findall(file.read_text(encoding="utf-8"))}
    return sorted(set(filter(is_definitions, headers)) - compiled)


def without_doors(text):
    """Without the definitions that a door includes at its end, which include the door."""
    return DOOR.sub("", text)


@once_per_text
def long_functions(text):
    """(line, lines) of each function that is too long."""
    text = WORDS.sub(lambda match: " " * len(match.group(0)), text)
    begun = []
    for place, character in enumerate(text):
        if character == "{":
            head = re.split(r"[;{}]|public:|private:|protected:", text[:place][-600:])[-1].strip()
            begun.append((place, FUNCTION.fullmatch(head) is not None))
        elif character == "}" and begun:
            first, is_function = begun.pop()
            lines = text.count("\n", first, place) + 1
            if is_function and lines > LONGEST_FUNCTION:
                yield text.count("\n", 0, first) + 1, lines


def split_list(text, begin):
    """The elements of the list that `begin` is behind the parenthesis of."""
    elements, depth, first = [], 0, begin
    for place in range(begin, len(text)):
        character = text[place]
        if character in "([{<":
            depth += 1
        elif character in ")]}" or (character == ">" and text[place - 1] != "-"):
            depth -= 1
        if depth < 0 or (depth == 0 and character == ","):
            elements.append(text[first:place].strip())
            first = place + 1
        if depth < 0:
            break
    return elements


@once_per_text
def long_parameter_lists(text):
    """(line, name, parameters) of each function that has too many."""
    text = FOREIGN.sub(lambda match: "\n" * match.group(0).count("\n"), text)
    text = WORDS.sub(lambda match: " " * len(match.group(0)), text)
    text = MACROS.sub(lambda match: "\n" * match.group(0).count("\n"), text)
    for match in CALLABLE.finditer(text):
        name = match.group(0)[:-1].strip()
        elements = split_list(text, match.end())
        typed = sum(PARAMETER.fullmatch(element) is not None for element in elements)
        if len(elements) > MOST_PARAMETERS and name != "requires" and 2 * typed > len(elements):
            yield text.count("\n", 0, match.start()) + 1, name, len(elements)


@once_per_text
def hiding_namespaces(text):
    """Those named detail, but rtrain::detail."""
    scopes = []
    for match in SCOPES.finditer(WORDS.sub("", text)):
        if match.group(0) == "}":
            if scopes:
                scopes.pop()
            continue
        scopes.append(match.group(1) or "")
        names = "::".join(filter(None, scopes))
        if match.group(1) and names.endswith("::detail") and names != "rtrain::detail":
            yield names


def problems_of(root):
    table, headers = read_table(root), read_headers(root)
    forwarding = {header for header, text in headers.items() if is_forwarding(header, text)}
    headers = {header: text for header, text in headers.items() if header not in forwarding}
    found = [f"{directory}: {number} headers; at most {MOST_HEADERS}"
             for directory, number in crowded_directories(headers)]
    if not table:
        found.append(f"{ROOMS}: no rooms")
    for room, allowed in table.items():
        for other in sorted(allowed - set(table)):
            found.append(f"{ROOMS}: {room} may include {other}, which is not a room")
        if not any(room_of(header, table) == room for header in headers):
            found.append(f"{ROOMS}: {room} holds no header")
    above = set()
    for room, allowed in table.items():
        above.add(room)
        for other in sorted(allowed & set(table) - above):
            found.append(f"{ROOMS}: {room} may include {other}, which is below it")
    circle = circle_in(table)
    if circle:
        found.append(f"{ROOMS}: rooms in a circle: " + " -> ".join(circle))

    arrows = {}
    for header, text in headers.items():
        room = room_of(header, table)
        if room not in (header, header.rpartition("/")[0] + "/"):
            found.append(f"{header}: it is in no room of {ROOMS}")
        lines = text.count("\n")
        if lines > LONGEST and not GENERATED.search(text):
            found.append(f"{header}: {lines} lines; at most {LONGEST}")
        for line, function_lines in long_functions(text):
            found.append(f"{header}:{line}: a function of {function_lines} lines; at most "
                         f"{LONGEST_FUNCTION}")
        for line, name, parameters in long_parameter_lists(text):
            found.append(f"{header}:{line}: {name}() has {parameters} parameters; at most {MOST_PARAMETERS}")
        if header not in CONSOLE and WRITES.search(text):
            found.append(f"{header}: writes to the standard error; console::say() does that")
        for name in hiding_namespaces(text):
            found.append(f"{header}: namespace {name} hides rtrain::detail")
        wrong = wrong_door(headers, header)
        if wrong:
            found.append(f"{header}: it has definitions; expected: {wrong}")
        arrows[header] = set(includes_of(header, without_doors(text)))
        for other in arrows[header]:
            if is_definitions(other):
                found.append(f"{header}: includes {other}, whose definitions stand behind a door")
        for other in includes_of(header, text):
            if other in forwarding:
                found.append(f"{header}: includes {other}, which forwards; include what it includes")
                continue
            if other not in headers:
                found.append(f"{header}: includes {other}, which does not exist")
                continue
            if other.endswith("_format.hpp") and header != other.replace("_format", "_definitions"):
                found.append(f"{header}: includes {other}, which is private to its definitions")
            target = room_of(other, table)
            if room and target and target != room and target not in table[room]:
                found.append(f"{header}: includes {other}, but {room} may not include {target}")
    found += [f"{header}: no file of {LIBRARY} includes it" for header in not_compiled(root, headers)]
    median = sorted(text.count("\n") for text in headers.values())[len(headers) // 2]
    if median > MEDIAN:
        found.append(f"the median header has {median} lines; at most {MEDIAN}")
    circle = circle_in(arrows)
    if circle:
        found.append("headers in a circle: " + " -> ".join(circle))
    found += ["directories in a circle: " + " -> ".join(circle) for circle in circles_of_directories(arrows)]
    return found


# Negative controls: each breaks one rule in a copy, and returns what must be said of it.

def add_line(path, line):
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("#pragma once\n", f"#pragma once\n\n{line}\n", 1), encoding="utf-8")


def change_table(root, room, allowed):
    """Adds `allowed` to what `room` may include."""
    entries = json.loads((root / ROOMS).read_text(encoding="utf-8"))
    next(entry for entry in entries if entry["room"] == room)["may include"].append(allowed)
    (root / ROOMS).write_text(json.dumps(entries), encoding="utf-8")


def lowest_and_highest(root):
    """A room that may include none, and one that may include it; with a header of each."""
    table, headers = read_table(root), read_headers(root)
    rooms = [room for room in table if room.endswith("/")]
    low = next(room for room in rooms if not table[room])
    high = next(room for room in reversed(rooms) if low in table[room])

    def first(room):
        return next(header for header in headers if room_of(header, table) == room)

    return low, first(low), high, first(high)


def forbidden_include(root):
    low, low_header, high, high_header = lowest_and_highest(root)
    add_line(root / HEADERS / low_header, f"#include <rtrain/{high_header}>")
    return f"{low_header}: includes {high_header}, but {low} may not include {high}"


def circle_of_rooms(root):
    low, _, high, _ = lowest_and_highest(root)
    change_table(root, low, high)
    return "rooms in a circle"


def circle_of_headers(root):
    low, first, _, _ = lowest_and_highest(root)
    add_line(root / HEADERS / first, f"#include <rtrain/{low}one.hpp>")
    (root / HEADERS / low / "one.hpp").write_text(f"#pragma once\n\n#include <rtrain/{first}>\n",
                                                  encoding="utf-8")
    return "headers in a circle"


def circle_of_directories(root):
    low, _, _, high_header = lowest_and_highest(root)
    (root / HEADERS / low / "one.hpp").write_text(f"#pragma once\n#include <rtrain/{high_header}>\nint one;\n",
                                                  encoding="utf-8")
    return "directories in a circle"


def crowded_directory(root):
    low, *_ = lowest_and_highest(root)
    for number in range(MOST_HEADERS + 1):
        (root / HEADERS / low / f"one{number}.hpp").write_text("#pragma once\n", encoding="utf-8")
    headers = [header for header in read_headers(root) if re.fullmatch(low + r"[^/]*(?<!_definitions)\.hpp", header)]
    return f"{low}: {len(headers)} headers; at most {MOST_HEADERS}"


def included_forwarding_header(root):
    low, low_header, _, high_header = lowest_and_highest(root)
    name = pathlib.PurePosixPath(low_header).name
    (root / HEADERS / "train" / name).write_text(f"#pragma once\n#include <rtrain/{low_header}>\n", encoding="utf-8")
    add_line(root / HEADERS / high_header, f"#include <rtrain/train/{name}>")
    return f"{high_header}: includes train/{name}, which forwards"


def header_in_no_room(root):
    (root / HEADERS / "attic").mkdir()
    (root / HEADERS / "attic/old.hpp").write_text("#pragma once\n", encoding="utf-8")
    return "attic/old.hpp: it is in no room"


def header_in_the_root(root):
    (root / HEADERS / "loose.hpp").write_text("#pragma once\n", encoding="utf-8")
    return "loose.hpp: it is in no room"


def empty_room(root):
    entries = json.loads((root / ROOMS).read_text(encoding="utf-8"))
    entries.append({"room": "empty/", "holds": "nothing", "may include": []})
    (root / ROOMS).write_text(json.dumps(entries), encoding="utf-8")
    return "empty/ holds no header"


def definitions_without_door(root):
    headers = read_headers(root)
    definitions = next(header for header in headers if is_definitions(header))
    add_line(root / HEADERS / "trainer.hpp", f"#include <rtrain/{definitions}>")
    return f"trainer.hpp: includes {definitions}"


def definitions_that_are_not_compiled(root):
    file = next((root / LIBRARY).glob("*.cpp"))
    text = file.read_text(encoding="utf-8")
    first = INCLUDE.search(text)
    file.write_text(text.replace(first[0], "", 1), encoding="utf-8")
    return f"{first[1]}: no file of {LIBRARY} includes it"


def definitions_of_another_name(root):
    low, low_header, *_ = lowest_and_highest(root)
    add_line(root / HEADERS / low_header, "RTRAIN_DOOR void f() {}")
    return f"{low_header}: it has definitions; expected: its name ends in"


def door_that_does_not_open(root):
    headers = read_headers(root)
    definitions = next(header for header in headers if is_definitions(header))
    door = definitions.replace(DEFINITIONS, ".hpp")
    (root / HEADERS / door).write_text(without_doors(headers[door]), encoding="utf-8")
    return f"{definitions}: it has definitions; expected: {door} includes it at its end"


def format_for_others(root):
    low, low_header, high, high_header = lowest_and_highest(root)
    (root / HEADERS / low / "vendor_format.hpp").write_text("#pragma once\n", encoding="utf-8")
    add_line(root / HEADERS / high_header, f"#include <rtrain/{low}vendor_format.hpp>")
    return f"{high_header}: includes {low}vendor_format.hpp"


def long_header(root):
    low, *_ = lowest_and_highest(root)
    (root / HEADERS / low / "long.hpp").write_text("#pragma once\n" + "\n" * LONGEST,
                                                   encoding="utf-8")
    return f"{low}long.hpp: {LONGEST + 1} lines"


def long_median(root):
    for number in range(len(read_headers(root)) + 1):
        (root / HEADERS / f"base/long{number}.hpp").write_text("\n" * (MEDIAN + 1), encoding="utf-8")
    return f"the median header has {MEDIAN + 1} lines"


def long_function(root):
    low, *_ = lowest_and_highest(root)
    (root / HEADERS / low / "long.hpp").write_text(
        "#pragma once\nint f(int n) {\n" + "    n = 1;\n" * LONGEST_FUNCTION + "}\n", encoding="utf-8")
    return f"{low}long.hpp:2: a function of {LONGEST_FUNCTION + 2} lines"


def long_parameter_list(root):
    low, *_ = lowest_and_highest(root)
    (root / HEADERS / low / "long.hpp").write_text(
        "#pragma once\nstruct S {\n    S(int a, const std::map<int, int>& b, std::string c = {},\n"
        "      double* d = nullptr, bool e = f(1, 2), S&& f);\n};\n", encoding="utf-8")
    return f"{low}long.hpp:3: S() has 6 parameters"


def second_console(root):
    low, *_ = lowest_and_highest(root)
    (root / HEADERS / low / "loud.hpp").write_text(
        '#pragma once\ninline void f() { std::fprintf(stderr, "loud"); }\n', encoding="utf-8")
    return f"{low}loud.hpp: writes to the standard error"


def hiding_namespace(root):
    low, *_ = lowest_and_highest(root)
    (root / HEADERS / low / "hiding.hpp").write_text(
        "#pragma once\nnamespace rtrain {\nnamespace detail {\n}\nnamespace low::detail {\n}\n}\n",
        encoding="utf-8")
    return f"{low}hiding.hpp: namespace rtrain::low::detail hides"


CONTROLS = [forbidden_include, circle_of_rooms, circle_of_headers, circle_of_directories, crowded_directory,
            included_forwarding_header, header_in_no_room,
            header_in_the_root, empty_room, definitions_without_door,
            definitions_that_are_not_compiled, definitions_of_another_name,
            door_that_does_not_open, format_for_others, long_header, long_median, long_function,
            long_parameter_list, second_console, hiding_namespace]


def unnoticed(root):
    """The controls that were not noticed."""
    missed = []
    for control in CONTROLS:
        with tempfile.TemporaryDirectory() as directory:
            copy = pathlib.Path(directory)
            shutil.copytree(root / HEADERS, copy / HEADERS)
            shutil.copytree(root / LIBRARY, copy / LIBRARY)
            (copy / ROOMS).parent.mkdir(parents=True)
            shutil.copy(root / ROOMS, copy / ROOMS)
            expected = control(copy)
            if not any(expected in problem for problem in problems_of(copy)):
                missed.append(f'negative control {control.__name__}: nothing says "{expected}"')
    return missed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    arguments = parser.parse_args()
    problems = problems_of(arguments.root)
    if not problems:
        problems = unnoticed(arguments.root)
    for problem in problems:
        print(f"rooms_test: {problem}", file=sys.stderr)
    if not problems:
        headers = read_headers(arguments.root)
        lengths = sorted(text.count("\n") for text in headers.values())
        print(f"{len(headers)} headers in {len(read_table(arguments.root))} rooms; the median has "
              f"{lengths[len(lengths) // 2]} lines, the longest {lengths[-1]}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
