# SPDX-License-Identifier: Apache-2.0
"""What MkDocs does beyond its options for this repository: README.md is the first page, docs/README.md is
documentation.md and the navigation, links to files outside docs/ lead to pages that show these, and headings
have the anchors that GitHub gives them."""

import html
import pathlib
import posixpath
import re

from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = "documentation.md"  # README.md would be the first page
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".py": "python", ".sh": "sh", ".sbatch": "sh", ".txt": "cmake",
             ".yaml": "yaml"}
REFERENCE = """# Reference

Every public name, made from the comments in the headers: **<a href="reference/index.html">open the
reference</a>**. Start with
<a href="reference/annotated.html">types</a>,
<a href="reference/namespaces.html">namespaces</a>,
<a href="reference/files.html">headers</a>.

Names in namespaces `detail` and `internal`, and rooms that only rtrain's own headers include, are left out:
they may change at any time. [Architecture](architecture.md) has them.
"""
CSS = """
.md-typeset table:not([class]) code { word-break: break-word; }
.md-typeset h1, .md-typeset h2, .md-typeset h3, .md-typeset a, .md-typeset p code, .md-typeset li code {
  overflow-wrap: anywhere; }
"""

# Browsers start no worker from a file; that of the search runs in a frame instead, and looks for this name.
WORKER = """if (location.protocol === "file:") window.Worker = window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe"), waiting = [];
    frame.hidden = true;
    document.body.append(frame);
    const inside = frame.contentWindow, load = source => new Promise((done, failed) => {
      const script = inside.document.createElement("script");
      Object.assign(script, {src: new URL(source, document.baseURI), onload: done, onerror: failed});
      inside.document.head.append(script);
    });
    const pass = (data, to) => to.dispatchEvent(new MessageEvent("message", {data}));
    inside.postMessage = data => pass(data, this);
    inside.importScripts = async (...sources) => { for (const source of sources) await load(source); };
    this.postMessage = data => waiting.push(data);
    load(url).then(() => {
      this.postMessage = data => pass(data, inside);
      waiting.forEach(this.postMessage);
    });
  }
};
"""


def slug(text, _separator):
    """GitHub's anchor of a heading."""
    text = html.unescape(re.sub(r"<[^>]*>", "", text)).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def site_path(path):
    """Where the site shows a path of the repository."""
    path = path.strip("/")
    if path == "README.md":
        return "index.md"
    if path in ("docs", "docs/README.md"):
        return INDEX
    if path.startswith("docs/"):
        return f"{path[5:]}/README.md" if (ROOT / path).is_dir() else path[5:]
    if (ROOT / path).is_dir():
        return f"repository/{path}/index.md"
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def origin_of(source):
    """The path of the repository that a page shows."""
    if source == "index.md":
        return "README.md"
    if source == INDEX:
        return "docs/README.md"
    if source.startswith("repository/"):
        path = source[len("repository/"):]
        if path.endswith("/index.md"):
            return path[:-len("/index.md")]
        return path if (ROOT / path).exists() else path[:-len(".md")]
    return f"docs/{source}"


def outside_code(text, change):
    """The text with its lines changed, but for blocks of code."""
    lines, fence = [], None
    for line in text.split("\n"):
        mark = re.match(r" *(```+|~~~+)", line)
        if mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
        lines.append(line if fence or mark else change(line))
    return "\n".join(lines)


def targets(text):
    found = []
    outside_code(text, lambda line: found.extend(LINK.findall(line)) or line)
    return [target.partition("#")[0] for target in found if not re.match(r"[a-z]+:|#", target)]


def resolve(origin, target):
    directory = origin if (ROOT / origin).is_dir() else posixpath.dirname(origin)
    return posixpath.normpath(posixpath.join(directory, target))


def content_of(path):
    """The page that shows a path outside docs/, or a directory."""
    full = ROOT / path
    if full.is_dir():
        names = sorted(entry.name for entry in full.iterdir() if not entry.name.startswith((".", "__")))
        return f"# {path}\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"
    text = full.read_text()
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n````{LANGUAGES.get(full.suffix, 'text')}\n{text}\n````\n"


def pages_below(directory):
    """The pages of docs/DIRECTORY, its index first."""
    names = sorted(page.name for page in (ROOT / "docs" / directory).glob("*.md"))
    return [f"{directory}/{name}" for name in sorted(names, key=lambda name: name != "README.md")]


def navigation():
    """The groups of docs/README.md with their pages; an index of a directory brings the pages beside it."""
    groups = []
    for line in (ROOT / "docs/README.md").read_text().splitlines():
        heading, entry = re.match(r"(##+) (.*)", line), re.match(r"- \[([^]]*)\]\(([^)#]*)\)", line)
        if heading and heading[1] == "##":
            section = pages = []
            groups.append({heading[2]: section})
        elif heading:
            pages = []
            section.append({heading[2]: pages})
        elif entry:
            directory = posixpath.dirname(entry[2])
            pages.append({entry[1]: pages_below(directory) if directory else entry[2]})
    groups[-1]["Reference"].insert(0, {"All public names": "reference.md"})
    return [{"rtrain": "index.md"}, {"Documentation": INDEX}, *groups]


def on_config(config):
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    config.nav = navigation()
    return config


def on_files(files, config):
    def add(source, text):
        shown = not source.startswith("repository/")
        level = InclusionLevel.INCLUDED if shown else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, source, content=text, inclusion=level))

    add("reference.md", REFERENCE)
    add("site.css", CSS)
    add("iframe-worker.js", WORKER)
    add("index.md", (ROOT / "README.md").read_text())
    files.remove(files.get_file_from_path("README.md"))
    add(INDEX, (ROOT / "docs/README.md").read_text())
    to_do = [file.src_uri for file in files.documentation_pages()]
    while to_do:
        source = to_do.pop()
        origin = origin_of(source)
        text = files.get_file_from_path(source).content_string
        for target in targets(text):
            path = resolve(origin, target)
            page = site_path(path)
            if files.get_file_from_path(page) is None and (ROOT / path).exists():
                add(page, content_of(path))
                if path.endswith(".md"):
                    to_do.append(page)
    return files


def on_page_markdown(markdown, page, files, **_):
    source = page.file.src_uri
    origin = origin_of(source)

    def change(match):
        target, mark, anchor = match[1].partition("#")
        if not target or re.match(r"[a-z]+:", match[1]) or source == "reference.md":
            return match[1]
        to = site_path(resolve(origin, target))
        return posixpath.relpath(to, posixpath.dirname(source) or ".") + mark + anchor

    return outside_code(markdown, lambda line: LINK.sub(change, line))
