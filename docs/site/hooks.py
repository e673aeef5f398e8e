"""Hooks of MkDocs: pages that lie outside ``docs/``, and links that leave the site.

The pages are written to be read in the repository, too. There a link may lead to any file. On the
site a link to another page becomes a link of the site, and a link to any other file becomes the
name of the file.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {
    "README.md": "index.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/FINDINGS.md": "FINDINGS.md",
    "conf/serve.toml": "serve.toml.md",
}
"""Files of the repository that are pages of the site, and their names there."""
HOME = {"docs/README.md": "index.md"}
"""The index of the folder has no page of its own: the navigation takes its place."""

_LINK = re.compile(r"(?<!!)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of ``docs/``."""
    for source, name in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".toml"):
            text = f"# Every key of serve.toml\n\n```toml\n{text}```\n"
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links that lead to pages of the site, or to nothing."""
    sources = {name: source for source, name in OUTSIDE.items()}
    here = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def link(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        name, _, anchor = target.partition("#")
        if not name or re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), name))
        site = OUTSIDE.get(path) or HOME.get(path)
        if site is None and path.startswith("docs/"):
            site = path.removeprefix("docs/")
        if site is None or files.get_file_from_path(site) is None:
            return text if path in text or text.startswith("`") else f"{text} (`{path}`)"
        start = posixpath.dirname(page.file.src_uri) or "."
        return f"[{text}]({posixpath.relpath(site, start)}{'#' * bool(anchor)}{anchor})"

    return _LINK.sub(link, markdown)
