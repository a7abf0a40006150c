"""What mkdocs calls while it builds: pages made from code, and pages from outside `docs/`."""

from __future__ import annotations

import os
import posixpath
import re
from typing import Any

import api_reference
import flag_reference
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from recordmill.pipelines.command_table import COMMANDS
from recordmill.transforms.dataset.rejects import REASONS
from recordmill.transforms.text.cleaning.dropped import DROP_REASONS

ROOT = api_reference.ROOT
PACKAGES = ("records", "reader", "transforms", "pipelines")
# Files of the repository that are pages of the site too.
REPOSITORY_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "templates/README.md": "guides/templates.md",
    "README.md": "index.md",
}
_SOURCES = {page: source for source, page in REPOSITORY_PAGES.items()}
_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_startup(**_: Any) -> None:
    """Links the folders under the names that they are imported by, before mkdocstrings looks."""
    folder = ROOT / "build" / "typed" / "recordmill"
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        link = folder / package
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(ROOT / package, folder))


def _rejects_page() -> str:
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in REASONS.items())
    drops = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in DROP_REASONS.items())
    return (
        "# Reject reasons\n\nWhat cannot be used is a line in `_meta/rejected/*.jsonl`, with "
        "`source`, `position`, `stage`, `reason` and `detail`, and is counted in the manifest by "
        "its reason. [Errors](../guides/errors.md) says how many rejects a run bears.\n\n"
        f"| reason | meaning |\n|---|---|\n{rows}\n\n"
        "## Documents that are dropped\n\n[Cleaning](../guides/text.md#cleaning) leaves out "
        "documents that can be used. They are no rejects, and are counted apart.\n\n"
        f"| reason | meaning |\n|---|---|\n{drops}\n"
    )


def _glossary_page() -> str:
    """Returns the glossary, which is a section of ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = re.search(r"^## Glossary\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if section is None:
        raise PluginError("ARCHITECTURE.md has no section 'Glossary'")
    return f"# Glossary\n{section[1]}"


def generated_pages() -> dict[str, str]:
    """Returns path in the site -> Markdown of the pages that are made from code."""
    commands = dict.fromkeys(command.split()[0] for command in COMMANDS)
    try:
        pages = {f"reference/flags-{name}.md": flag_reference.page(name) for name in commands}
    except ValueError as error:
        raise PluginError(str(error)) from error
    for package in (*api_reference.NAMES, "recordmill.records"):
        name = package.rpartition(".")[2]
        pages[f"reference/api-{name}.md"] = api_reference.page(package)
    pages["reference/rejects.md"] = _rejects_page()
    pages["concepts/glossary.md"] = _glossary_page()
    return pages


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are no files of `docs/`."""
    pages = generated_pages()
    for source, page in REPOSITORY_PAGES.items():
        pages[page] = (ROOT / source).read_text(encoding="utf-8")
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Turns links between files of the repository into links between pages.

    Raises:
      PluginError: a link leads to no file.
    """
    here = page.file.src_uri
    source = _SOURCES.get(here, f"docs/{here}")

    def rewrite(match: re.Match[str]) -> str:
        text, link, anchor = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        if target in REPOSITORY_PAGES:
            path = REPOSITORY_PAGES[target]
        elif target.startswith("docs/"):
            path = target.removeprefix("docs/")
        elif (ROOT / target).exists():
            return text  # a file of the code, which the site does not have
        else:
            raise PluginError(f"{source}: the link to {link} leads nowhere")
        return f"[{text}]({posixpath.relpath(path, posixpath.dirname(here) or '.')}{anchor})"

    return _LINK.sub(rewrite, markdown)
