"""MediaWiki's XML dumps: a page is a document. Redirects and other namespaces are left out.

Markup cannot hold `<page>`, because `<` is written as `&lt;` in there: so the pages of a dump are
found by their tags alone, and each is parsed on its own. A page is known by its number, not by its
place. A dump of many bzip2 streams, as Wikimedia's "multistream" files are, is cut between streams
that begin with a page.

    https://www.mediawiki.org/xml/export-0.11.xsd
"""

from __future__ import annotations

import bz2
import html
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from recordmill.records.arrays import Int64s
from recordmill.records.errors import UsageError
from recordmill.transforms.sources.blocks import BrokenFileError, read_blocks
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.record_rows import RecordRows
from recordmill.transforms.sources.row_fields import RecordRejectedError
from recordmill.transforms.sources.rows import RowOptions
from recordmill.transforms.sources.work_items import (
    TYPICAL_COMPRESSION_RATIO,
    SourceRange,
    equal_starts,
    ranges_at,
)
from recordmill.transforms.storage import files

_PAGE, _PAGE_END, _SITE_END = b"<page>", b"</page>", b"</siteinfo>"
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
_STREAM_BYTES = 10
_MOST_STREAMS = 64  # that are looked into for one cut
_READ_BYTES = 1 << 20
_NAMESPACE = re.compile(rb'<namespace key="(?:6|14)"[^>]*>([^<]*)<')
_PREFIXES = frozenset({"file", "image", "category"})  # of links that stand for no text
_LEFT_OUT = frozenset({"ref", "table", "gallery", "math", "timeline", "score", "imagemap"})
_BLANK_LINES = re.compile(r"\n{3,}")


class DumpPages(RecordRows):
    """See `rows.RowSource`: a record ends with `</page>`; the position of a page is its number.

    Args:
      source: the range.
      options: which pages are read, and what becomes of markup.

    Raises:
      UsageError: markup is to be removed, and nothing is installed that does it.
    """

    def __init__(self, source: SourceRange, options: RowOptions) -> None:
        super().__init__(source, options)
        spec = options.spec
        self._namespaces = frozenset(spec.wiki_namespaces)
        self._tail = b""
        self._text: Callable[[str], str] = lambda text: text
        if spec.wiki_markup == "remove":
            self._text = MarkupRemover(_PREFIXES | _link_prefixes(source, spec))

    def start(self) -> int:
        """Returns the byte behind the last page that another range reads."""
        start = self.source.start
        if start and not self.source.compression:
            return _first_end(self.source, self.options.limits)
        return start

    def position_of(self, fields: dict[str, object], position: int) -> int:
        """Returns the number of a page."""
        return cast(int, fields["id"])

    def record_ends(self, block: bytes) -> Int64s:
        """Returns `[num_ends] int64`: the offsets in the next block just behind each page."""
        data, before = self._tail + block, len(self._tail)
        self._tail = data[1 - len(_PAGE_END) :]
        ends = [found.end() - before for found in re.finditer(_PAGE_END, data)]
        return np.array(ends, np.int64)

    def parse(self, record: bytes) -> dict[str, object] | None:
        """Returns what a page has; None for what is none, or is left out.

        Raises:
          RecordRejectedError: it is not whole, or no XML.
        """
        begin = record.find(_PAGE)
        if begin < 0:
            return None
        try:
            page = fromstring(record[begin:])
        except (ParseError, DefusedXmlException) as error:
            raise RecordRejectedError("broken_page", str(error)) from error
        number, namespace = page.findtext("id", ""), page.findtext("ns", "0")
        if not (number.isdecimal() and namespace.lstrip("-").isdecimal()):
            raise RecordRejectedError("broken_page", f"its id is {number!r}")
        if page.find("redirect") is not None or int(namespace) not in self._namespaces:
            return None
        revision = page.findall("revision")[-1:]
        fields = {each.tag: each.text or "" for each in (revision[0] if revision else ())}
        return {
            "id": int(number), "ns": int(namespace), "title": page.findtext("title", ""),
            "timestamp": fields.get("timestamp", ""), "text": self._text(fields.get("text", "")),
        }  # fmt: skip


class MarkupRemover:
    """Leaves of markup what a reader sees as running text, by mwparserfromhell.

    Templates, references, tables, formulas, files and categories go; links leave their words.

    Args:
      prefixes: of links that stand for no text, in lower case.

    Raises:
      UsageError: the package is not installed.
    """

    def __init__(self, prefixes: frozenset[str]) -> None:
        self._prefixes = prefixes
        parser_version()
        import mwparserfromhell

        self._parse: Callable[[str], Any] = mwparserfromhell.parse

    def __call__(self, markup: str) -> str:
        """Returns the text.

        Raises:
          RecordRejectedError: the parser cannot read the markup.
        """
        try:
            code = self._parse(markup)
            for node in code.filter(matches=self._is_left_out):
                # Removing a node looks through all others, ten times as long as parsing.
                for name in ("contents",) if type(node).__name__ == "Tag" else ("title", "text"):
                    setattr(node, name, "")
            text = cast(str, code.strip_code(normalize=True, collapse=True))
        except (ArithmeticError, LookupError, RecursionError, RuntimeError, ValueError) as error:
            detail = f"{type(error).__name__}: {error}"
            raise RecordRejectedError("broken_page", detail) from error
        return _BLANK_LINES.sub("\n\n", "\n".join(line.strip() for line in text.split("\n")))

    def _is_left_out(self, node: Any) -> bool:
        kind = type(node).__name__
        if kind == "Tag":
            return str(node.tag).strip().lower() in _LEFT_OUT
        if kind != "Wikilink":
            return False
        prefix, colon, _ = str(node.title).partition(":")
        return bool(colon) and prefix.strip().lower().replace("_", " ") in self._prefixes


def parser_versions(spec: DocumentSpec) -> dict[str, str]:
    """Returns the version of what removes markup, unless that stays.

    Raises:
      UsageError: it is not installed.
    """
    return {"mwparserfromhell": parser_version()} if spec.wiki_markup == "remove" else {}


def parser_version() -> str:
    """Returns the version of what removes markup, which decides what is left.

    Raises:
      UsageError: it is not installed.
    """
    try:
        import mwparserfromhell
    except ImportError as error:
        raise UsageError(
            "--wiki_markup=remove needs the package mwparserfromhell on every worker; run pip "
            "install 'recordmill[wiki]', or give --wiki_markup=keep"
        ) from error
    return str(mwparserfromhell.__version__)


def _link_prefixes(source: SourceRange, spec: DocumentSpec) -> frozenset[str]:
    """Returns what the dump's own language calls the namespaces of files and categories."""
    beginning = b""
    try:
        for block in read_blocks(replace(source, start=0, end=-1), spec, 0, _READ_BYTES // 16):
            beginning += block
            if _SITE_END in beginning or len(beginning) >= _READ_BYTES:
                break
    except BrokenFileError:  # whoever reads the range meets it too
        pass
    names = _NAMESPACE.findall(beginning.partition(_SITE_END)[0])
    return frozenset(html.unescape(name.decode("utf-8", "replace")).lower() for name in names)


@contextmanager
def open_pages(source: SourceRange, options: RowOptions) -> Iterator[DumpPages]:
    """Opens a range of a dump, see `formats.SourceFormat.opened`."""
    yield DumpPages(source, options)


def _first_end(source: SourceRange, limits: DocumentLimits) -> int:
    """Returns where the first page ends that ends in a range or later; there the next begins."""
    at = max(0, source.start - len(_PAGE_END))
    with files.open_read(source.path, at) as handle:
        data = b""
        while block := handle.read(limits.block_bytes):
            data += block
            found = data.find(_PAGE_END)
            while found >= 0 and at + found + len(_PAGE_END) < source.start:
                found = data.find(_PAGE_END, found + 1)
            if found >= 0:
                return at + found + len(_PAGE_END)
            if 0 <= source.end <= at + len(data) - len(_PAGE_END):
                break
            at, data = at + max(0, len(data) - len(_PAGE_END)), data[-len(_PAGE_END) :]
    return source.size


def cut_pages(source: SourceRange, target_bytes: int, options: CutOptions) -> Iterator[SourceRange]:
    """Yields ranges of about so many bytes, of a compressed dump where its streams allow it."""
    starts = [0]
    if options.splittable and not source.compression:
        starts = equal_starts(source, target_bytes)
    elif source.compression == "bz2":
        wanted = equal_starts(source, max(1, target_bytes // TYPICAL_COMPRESSION_RATIO))
        found = (_next_stream(source.path, at) for at in wanted[1:])
        starts = sorted({0, *filter(None, found)})
    yield from ranges_at(source, starts)


def _next_stream(path: str, begin: int) -> int | None:
    """Returns where, from a byte on, the next bzip2 stream begins that begins with a page."""
    streams, at, data = 0, begin, b""
    with files.open_read(path, begin) as handle:
        while block := handle.read(_READ_BYTES):
            data += block
            for found in _STREAM.finditer(data):
                if _begins_with_page(path, at + found.start()):
                    return at + found.start()
                streams += 1
                if streams == _MOST_STREAMS:  # a dump that was packed in parallel, at any byte
                    return None
            kept = min(len(data), _STREAM_BYTES - 1)
            at, data = at + len(data) - kept, data[len(data) - kept :]
    return None


def _begins_with_page(path: str, at: int) -> bool:
    try:
        packed = files.read_bytes(path, at, _READ_BYTES)
        return bz2.BZ2Decompressor().decompress(packed, 256).lstrip().startswith(_PAGE)
    except OSError:  # bytes that look like the beginning of a stream
        return False
