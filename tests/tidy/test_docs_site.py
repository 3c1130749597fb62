"""What ci/docs_site.py makes of files of the tree."""

from pathlib import Path

import docs_site as site
import pytest
from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "file", "page", "made"),
    [
        ("[a](plugin/PROTOCOL.md#wire)", "README.md", "index.md", "[a](protocol.md#wire)"),
        ("![a](docs/images/overlap.svg)", "README.md", "index.md", "![a](images/overlap.svg)"),
        ("[a](../../plugin/tools/README.md)", "docs/guides/two-sites.md", "guides/two-sites.md", "[a](../lab.md)"),
        ("[a](PROTOCOL.md)", "plugin/README.md", "reference/events.md", "[a](../protocol.md)"),
        ("[a](docs/decisions)", "CONTRIBUTING.md", "contributing.md", "[a](decisions/README.md)"),
        ("[the licence](LICENSE)", "README.md", "index.md", "the licence"),
        ("[a](#b) [c](https://d.example/e.md)", "README.md", "index.md", "[a](#b) [c](https://d.example/e.md)"),
        ("```\n[a](nowhere.md)\n```", "README.md", "index.md", "```\n[a](nowhere.md)\n```"),
        ("- a\n  - b", "README.md", "index.md", "- a\n    - b"),
    ],
)
def test_links_between_files_are_links_between_pages(text: str, file: str, page: str, made: str) -> None:
    assert site.rendered(text, file, page) == made


def test_a_link_to_nothing_is_an_error() -> None:
    with pytest.raises(PluginError, match=r"README.md links to docs/nowhere.md: there is no docs/nowhere.md"):
        site.rendered("[a](docs/nowhere.md)", "README.md", "index.md")


def test_a_section_is_included_without_its_heading_and_what_follows() -> None:
    made = site.rendered("<!-- include: plugin/README.md#events -->", "docs/reference/events.md", "reference/events.md")
    assert "`exchange_seconds`" in made and "Reading order" not in made and "## Events" not in made
    with pytest.raises(PluginError, match="no section nothing"):
        site.rendered("<!-- include: plugin/README.md#nothing -->", "docs/reference/events.md", "reference/events.md")


def test_commands_come_from_argparse() -> None:
    made = site.rendered("<!-- commands -->", "docs/reference/commands.md", "reference/commands.md")
    assert "## `collab token`" in made and "--rotate" in made
