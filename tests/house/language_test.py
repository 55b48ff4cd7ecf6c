#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Comments, messages and pages are plain English, in the field's terms (CONTRIBUTING.md).

    language_test.py ROOT               compares each directory's count of phrases with language.json; counts only go down
    language_test.py ROOT --list PATH   shows the phrases in a directory or file
    language_test.py ROOT --update      writes the counts, where they are lower

Comment lines that follow each other are one text, and so are string literals."""
import json, pathlib, re, sys

PATTERNS = [
    (r"\bbehind\b", r"behind (the|a|its) doors?\b|\b(left|lags?|stays?|lagging|lies) behind\b"),
    (r"\b(go(es|ing)?|went|gone) on\b", None),
    (r"\b(is|are|was|were) no (?!longer|more)[a-z]", None),
    (r"\b(that|which|what) (is|are) there\b|\bha(s|ve|d) come\b", None),
    (r"\b(told|tells?|hears?|heard)\b", r"\bcan tell\b"),
    (r"\b(whoever|(no|every|some|any)body)\b|\b(those|ones?) who\b", None),
    (r"\banew\b|\bunder way\b|\btake[sn]? up\b|\bpass(ed|es)? over\b|\bput together\b", None),
    (r"\bof (its|their|one's|your|our) own\b", None),
    (r"\b(without a word|in silence|in passing|in vain|for good|for ever|on wish|but for|besides)\b", None),
    (r"\bma(k(e|es|ing)|de) room\b", None),
]
START = re.compile(r"(Of|By|As|What|Who|How)\b")
PATTERNS = [(re.compile(p, re.I), re.compile(a, re.I) if a else None) for p, a in PATTERNS]

TOKEN = re.compile(r'R"(?P<d>[^()\\ ]*)\((?P<raw>.*?)\)(?P=d)"|"(?P<text>(?:[^"\\\n]|\\.)*)"'
                   r"|'(?:[^'\\\n]|\\.)'|//(?P<comment>[^\n]*)|/\*(?P<block>.*?)\*/", re.S)


def cpp_texts(source):
    """(line, whether it is a comment, text) of each."""
    texts, end = [], 0
    for token in TOKEN.finditer(source):
        between = source[end:token.start()]
        line = source.count("\n", 0, token.start()) + 1
        if token["comment"] is not None:
            comment = re.sub(r"^[/!]?<? ?", "", token["comment"])
            whole_line = source[:token.start()].rpartition("\n")[2].strip() == ""
            if texts and texts[-1][1] and whole_line and between.count("\n") == 1 and not between.strip():
                texts[-1][2] += " " + comment.strip()
            else:
                texts.append([line, True, comment.strip()])
        elif token["block"] is not None:
            texts.append([line, True, token["block"]])
        elif token["text"] is not None or token["raw"] is not None:
            text = token["text"] if token["text"] is not None else token["raw"]
            if texts and not texts[-1][1] and not between.strip():
                texts[-1][2] += text
            else:
                texts.append([line, False, text])
        else:
            continue
        end = token.end()
    return [(line, comment, re.sub(r"`[^`]*`|@code.*?@endcode", "``", text)) for line, comment, text in texts]


def page_texts(source):
    source = re.sub(r"^(```|~~~).*?^\1", lambda fence: "\n" * fence[0].count("\n"), source, flags=re.S | re.M)
    texts, at = [], 1
    for paragraph in re.split(r"(\n\s*\n)", source):
        if paragraph.strip():
            texts.append((at, False, re.sub(r"\s+", " ", re.sub(r"`[^`]*`", "``", paragraph))))
        at += paragraph.count("\n")
    return texts


def phrases(path):
    source = path.read_text()
    for line, comment, text in (cpp_texts if path.suffix == ".hpp" else page_texts)(source):
        if comment and START.match(text):
            yield line, START.match(text)[0] + " ...", text
        for pattern, allowed in PATTERNS:
            for match in pattern.finditer(text):
                around = text[max(0, match.start() - 20):match.end() + 20]
                is_format = not comment and text == match[0]  # a word on the wire or in a file
                if not is_format and not (allowed and allowed.search(around)):
                    yield line, match[0], text


def files(root):
    found = sorted(root.glob("include/**/*.hpp")) + sorted(root.glob("docs/**/*.md"))
    return found + [root / "README.md", root / "CONTRIBUTING.md"]


def main():
    root = pathlib.Path(sys.argv[1])
    if sys.argv[2:3] == ["--list"]:
        under = (root / sys.argv[3]).resolve()
        for path in files(root):
            if path.resolve() == under or under in path.resolve().parents:
                for line, phrase, text in phrases(path):
                    print(f"{path.relative_to(root)}:{line}: {phrase!r} in: {' '.join(text.split())[:300]}")
        return 0
    counts = {}
    for path in files(root):
        directory = str(path.parent.relative_to(root))
        counts[directory] = counts.get(directory, 0) + sum(1 for _ in phrases(path))
    record = root / "tests/house/language.json"
    allowed = json.loads(record.read_text()) if record.exists() else None
    if sys.argv[2:3] == ["--update"]:
        if allowed is not None:
            counts = {name: min(count, allowed.get(name, 0)) for name, count in counts.items()}
        kept = {name: count for name, count in counts.items() if count > 0}
        record.write_text(json.dumps(kept, indent=2) + "\n")
        return 0
    wrong = [name for name, count in counts.items() if count > (allowed or {}).get(name, 0)]
    for name in wrong:
        print(f"language_test: {name}: {counts[name]} phrases to reword, {(allowed or {}).get(name, 0)} allowed; "
              f"see them with --list {name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
