"""Check the built documentation without a network: links and anchors exist, and no page fetches anything.

``python docs/check_site.py build/docs/html``. Links to other sites are counted, not followed.
"""

from __future__ import annotations

import html.parser
import pathlib
import re
import sys
import urllib.parse

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
"""Attributes whose address a browser loads by itself; beside those of ``link``, by its ``rel``."""

MARKDOWN_LINK = re.compile(r"\]\(([^)\s]+)\)")


class Page(html.parser.HTMLParser):
    """The anchors of a page, the addresses it links to, and those it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what an element names, links to or loads."""
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in FETCHED and FETCHED[tag] in found:
            self.loads.append(found[FETCHED[tag]])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(found.get("href", ""))


def is_elsewhere(address: str) -> bool:
    """Return whether an address is on another site."""
    return bool(urllib.parse.urlsplit(address).scheme) or address.startswith("//")


def problems(root: pathlib.Path) -> tuple[list[str], int]:
    """Return what is wrong with a site, and how many links lead elsewhere."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(root.rglob("*.html"))}
    found, elsewhere = [], 0
    for path, page in pages.items():
        name = path.relative_to(root.resolve())
        outside = [address for address in page.loads if is_elsewhere(address) and not address.startswith("data:")]
        found += [f"{name} loads {address}" for address in outside]
        for address in [*page.links, *page.loads]:
            if is_elsewhere(address):
                elsewhere += 1
                continue
            place, _, anchor = urllib.parse.unquote(address).partition("#")
            target = (path.parent / place.partition("?")[0]).resolve() if place else path
            if not target.exists():
                found.append(f"{name}: no file {address}")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.append(f"{name}: no anchor {address}")
    listed = root / "llms.txt"
    for address in MARKDOWN_LINK.findall(listed.read_text()):
        if not (root / address).exists():
            found.append(f"llms.txt: no file {address}")
    for needed in ("searchindex.js", "_static/searchtools.js"):
        if not (root / needed).exists():
            found.append(f"search needs {needed}")
    return found, elsewhere


def main() -> None:
    """Print what is wrong, and exit with an error if anything is."""
    root = pathlib.Path(sys.argv[1])
    found, elsewhere = problems(root)
    print("\n".join(found) or f"all links within {root} lead somewhere, and no page loads anything from elsewhere")
    print(f"{elsewhere} links to other sites were not followed")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
