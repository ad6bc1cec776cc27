"""The documentation: every public name has a page with an example, pages are listed, snippets are read as tests."""

from __future__ import annotations

import doctest
import inspect
import pathlib
import re
import types

import pytest

import balson_jax as balson

DOCS = pathlib.Path(__file__).parents[1] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "notebooks" not in path.relative_to(DOCS).parts[:-1])
OTHERS = [DOCS.parent / name for name in ("README.md", "CONTRIBUTING.md")]
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.M | re.S)


def relative(path):
    return path.relative_to(DOCS).as_posix()


def from_root(path):
    return path.relative_to(DOCS.parent).as_posix()


def sections():
    """Return the text under each second heading of the reference, by heading."""
    found = {}
    for page in sorted((DOCS / "reference").glob("*.md")):
        for part in re.split(r"^## ", page.read_text(), flags=re.M)[1:]:
            heading, _, text = part.partition("\n")
            found[heading.replace("\\", "").strip()] = text
    return found


SECTIONS = sections()


def docstrings(thing):
    """Return the docstring of a name, and those of a module's public functions."""
    own = [inspect.getdoc(thing) or ""]
    if isinstance(thing, types.ModuleType):
        members = [getattr(thing, name) for name in getattr(thing, "__all__", dir(thing)) if not name.startswith("_")]
        own += [inspect.getdoc(member) or "" for member in members if callable(member)]
    return own


@pytest.mark.parametrize("name", balson.__all__)
def test_every_public_name_has_a_section_and_an_example(name):
    assert name in SECTIONS, f"{name} has no section in docs/reference: add one, with an example"
    texts = [SECTIONS[name], *docstrings(getattr(balson, name))]
    examples = [example.source for text in texts for example in doctest.DocTestParser().get_examples(text)]
    assert examples, f"{name} has no example: add one to its section in docs/reference, or to its docstring"
    is_module = isinstance(getattr(balson, name), types.ModuleType)
    assert is_module or any(name in source for source in examples), f"no example of {name} names it"


def test_every_section_of_the_reference_is_a_public_name():
    others = {"The scikit-learn regressor", "Settings that ISIRS and RSIRS share"}
    assert set(SECTIONS) - others == set(balson.__all__)


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=from_root)
def test_snippets_end_before_their_fence(page):
    """A doctest reads the closing fence as output unless an empty line comes before it."""
    for kind, text in FENCE.findall(page.read_text()):
        if ">>>" in text:
            assert kind == "python"
            assert text.endswith("\n\n")
        if kind == "python" and ">>>" not in text:
            compile(text, str(page), "exec")


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=from_root)
def test_links_between_pages_lead_somewhere(page):
    prose = FENCE.sub("", page.read_text())
    for address in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
        if "://" in address:
            continue
        place = (page.parent / address).resolve()
        # Notebooks are copied when the site is built.
        copied = DOCS / "notebooks"
        place = DOCS.parent / "notebooks" / place.relative_to(copied) if copied in place.parents else place
        assert place.exists(), address


def test_every_page_is_listed_for_machines():
    listed = set(re.findall(r"\]\(([^)]+)\.html\)", (DOCS / "llms.txt").read_text()))
    pages = {relative(page).removesuffix(".md") for page in PAGES}
    overviews = {"index", "notebooks", *(f"{part}/index" for part in ("start", "fields", "trust", "scale", "extend"))}
    overviews |= {f"reference/{page.stem}" for page in DOCS.glob("reference/*.md")}
    assert pages - overviews == listed - {"reference/index"}


def test_bibliography_has_what_is_cited_and_nothing_else():
    known = set(re.findall(r"^@\w+\{([^,]+),", (DOCS / "references.bib").read_text(), re.M))
    cited = set()
    for page in PAGES:
        for keys in re.findall(r"\{cite:[pt]\}`([^`]+)`", page.read_text()):
            cited |= set(keys.split(","))
    assert cited == known
