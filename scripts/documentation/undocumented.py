#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Public names without a comment in Doxygen's XML: types, functions, fields, enumerators, macros. A name
with several overloads needs one comment. Constructors, destructors and operators need none: what they do
that is not obvious belongs to the type's comment, or beside them. Nor do members that a concept
prescribes.

Usage: undocumented.py XML_DIRECTORY
"""

import pathlib
import sys
import xml.etree.ElementTree as xml


# Members that a concept prescribes are described where it is declared, with what holds for all types.
PRESCRIBED = {
    "backend/policy.hpp": "rank size all_reduce broadcast local_rank local_size node_rank all_gather "
                          "reduce_scatter all_reduce_async barrier device start poll wait finish",
    "checkpoint/policy/policy.hpp": "saves_state write read writes_in_background",
    "config/callback.hpp": "name in_background takes_reports on_start after_report after_checkpoint "
                           "after_exception on_end",
    "config/tracker.hpp": "name output start rewind write flush finish lines_together",
    "data/dataset/blocks.hpp": "size rows blocks name_of read kind index",
    "preprocess.hpp": "fit transform save load output_columns",
    "state/state.hpp": "save load",
    "storage/filesystem.hpp": "list read write upload download remove exists read_at look_at",
    "tune/schedule/scheduler.hpp": "begin add on_result on_end next orders",
    "tune/search/searcher.hpp": "ask tell",
    "C++ itself": "begin end value_type difference_type Iterator empty",
}
SAYS_ENOUGH = {name for names in PRESCRIBED.values() for name in names.split()}


def has_comment(element):
    return any("".join(part.itertext()).strip()
               for tag in ("briefdescription", "detaileddescription", "inbodydescription")
               for part in element.findall(tag))


def place_of(element):
    location = element.find("location")
    return f"{location.get('file')}:{location.get('line')}" if location is not None else "?"


def is_exempt(name, scope):
    last = scope.split("<")[0].rsplit("::", 1)[-1].strip()
    return (name.startswith(("~", "operator", "@", "TORCH_MODULE")) or name == last
            or name in SAYS_ENOUGH or last.endswith("Suite"))  # a suite's members are named as tests are


def names_in(file):
    """Qualified name, place and whether there is a comment, of all that a file of Doxygen's shows."""
    for compound in xml.parse(file).getroot().findall("compounddef"):
        kind, scope = compound.get("kind"), compound.findtext("compoundname")
        if compound.get("prot") == "private":
            continue
        if kind in ("class", "struct", "union", "concept"):
            yield scope.split("<")[0].strip(), place_of(compound), has_comment(compound)
        if kind not in ("class", "struct", "union", "namespace", "file"):
            continue
        for member in compound.iter("memberdef"):
            what, name = member.get("kind"), member.findtext("name")
            if member.get("prot") != "public" or is_exempt(name, scope) or what == "friend":
                continue
            if kind == "file" and what != "define":
                continue  # seen in its namespace
            full = name if kind == "file" else f"{scope.split('<')[0].strip()}::{name}"
            yield full, place_of(member), has_comment(member)
            if what == "enum":
                for value in member.findall("enumvalue"):
                    yield f"{full}::{value.findtext('name')}", place_of(member), has_comment(value)


def main():
    places, documented = {}, set()
    for file in sorted(pathlib.Path(sys.argv[1]).glob("*.xml")):
        if file.name != "index.xml":
            for name, place, has in names_in(file):
                places.setdefault(name, place)
                documented |= {name} if has else set()
    assert len(places) > 500, f"{sys.argv[1]} has {len(places)} names: not what Doxygen writes"
    missing = sorted((places[name], name) for name in places if name not in documented)
    for place, name in missing:
        print(f"{place}: {name} has no comment")
    print(f"{len(places)} public names")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
