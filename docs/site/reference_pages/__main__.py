"""Write the pages of ``docs/reference``: ``make docs-reference``."""

from __future__ import annotations

from reference_pages import FOLDER, pages

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"docs-reference: {len(pages())} pages in {FOLDER}")
