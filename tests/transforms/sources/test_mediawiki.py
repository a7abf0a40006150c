"""MediaWiki's XML dumps."""

from __future__ import annotations

import bz2
import gzip
import html
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.errors import UsageError
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.item_cutting import cut_source
from recordmill.transforms.sources.mediawiki import MarkupRemover
from recordmill.transforms.sources.source_checks import check_contents
from recordmill.transforms.sources.work_items import SourceRange, list_sources

from ...pipelines.jobs import shard_bytes

SITE = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""
KEEP = DocumentSpec(sentence_splitter="whole", wiki_markup="keep")


def page(number: int, text: str, *, namespace: int = 0, redirect: bool = False) -> str:
    moved = '    <redirect title="Other" />\n' if redirect else ""
    return (
        f"  <page>\n    <title>Title {number} &amp; more</title>\n    <ns>{namespace}</ns>\n"
        f"    <id>{number}</id>\n{moved}    <revision>\n      <id>{number + 10**6}</id>\n"
        "      <timestamp>2024-01-01T00:00:00Z</timestamp>\n"
        f'      <text bytes="9" xml:space="preserve">{html.escape(text, quote=False)}</text>\n'
        "    </revision>\n  </page>\n"
    )


def texts(count: int) -> list[str]:
    return [f"'''Text {n}''' of é {n}.\n\nIt has <page> and </page> in it." for n in range(count)]


def dump(pages: list[str]) -> bytes:
    return f"{SITE}{''.join(pages)}</mediawiki>\n".encode()


def multistream(pages: list[str], each: int) -> bytes:
    """As Wikimedia packs its dumps: the site, then so many pages a stream."""
    groups = ["".join(pages[at : at + each]) for at in range(0, len(pages), each)]
    return b"".join(bz2.compress(part.encode()) for part in [SITE, *groups, "</mediawiki>\n"])


PAGES = [page(n + 7, text) for n, text in enumerate(texts(40))]
PACKED: dict[str, Callable[[], bytes]] = {
    "a.xml": lambda: dump(PAGES),
    "a.xml.gz": lambda: gzip.compress(dump(PAGES)),
    "a.xml.bz2": lambda: bz2.compress(dump(PAGES)),
    "multistream.xml.bz2": lambda: multistream(PAGES, 3),
    "part.xml-p7p46.bz2": lambda: multistream(PAGES, 3),
}


def read(
    sources: list[SourceRange], spec: DocumentSpec = KEEP, block: int = 1 << 20
) -> tuple[list[tuple[str, int, int, int]], list[Any]]:
    """The text, key, group and position of each document, and the rejects."""
    found, rejects = [], []
    for source in sources:
        limits = DocumentLimits(block_bytes=block)
        for batch in read_documents(source, spec, limits=limits):
            lines = [batch.lines[i].decode() for i in range(len(batch.lines))]
            columns = (batch.keys.tolist(), batch.groups.tolist(), batch.positions.tolist())
            found += list(zip(lines, *columns, strict=True))
            rejects += batch.rejects
    return found, rejects


def listed(path: Path) -> SourceRange:
    (source,) = list_sources([str(path)])
    assert source.format == "mediawiki"
    return source


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("target", [1 << 30, 3000, 700])
def test_a_dump_is_the_same_in_any_ranges(name: str, target: int, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(PACKED[name]())
    whole = listed(tmp_path / name)
    ranges = list(cut_source(whole, target, CutOptions()))
    is_cut = target < 1 << 20 and (name == "a.xml" or "p7" in name or "multi" in name)
    assert (len(ranges) > 1) == is_cut
    found, rejects = read(ranges, block=333)
    assert [text for text, *_ in found] == texts(40)
    assert [position for *_, position in found] == list(range(7, 47))
    assert rejects == []
    assert found == read([whole])[0]


def test_ranges_that_begin_at_any_byte(tmp_path: Path) -> None:
    data = dump(PAGES[:3])
    (tmp_path / "a.xml").write_bytes(data)
    whole = listed(tmp_path / "a.xml")
    expected = read([whole])[0]
    for cut in range(1, len(data), 7):
        parts = [
            SourceRange(whole.path, whole.name, "mediawiki", "", whole.size, a, b)
            for a, b in [(0, cut), (cut, len(data))]
        ]
        assert read(parts, block=50)[0] == expected


def test_streams_of_a_parallel_packer_are_no_ranges(tmp_path: Path) -> None:
    data = dump(PAGES)
    parts = [data[at : at + 900] for at in range(0, len(data), 900)]
    (tmp_path / "a.xml.bz2").write_bytes(b"".join(map(bz2.compress, parts)))
    whole = listed(tmp_path / "a.xml.bz2")
    assert list(cut_source(whole, 700, CutOptions())) == [whole]
    assert [text for text, *_ in read([whole])[0]] == texts(40)


def test_redirects_and_other_namespaces_are_left_out(tmp_path: Path) -> None:
    pages = [
        page(1, "article"), page(2, "#REDIRECT [[article]]", redirect=True),
        page(3, "talk", namespace=1), page(4, "special", namespace=-1), page(5, "second"),
    ]  # fmt: skip
    (tmp_path / "a.xml").write_bytes(dump(pages))
    whole = listed(tmp_path / "a.xml")
    assert [text for text, *_ in read([whole])[0]] == ["article", "second"]
    spec = DocumentSpec(sentence_splitter="whole", wiki_markup="keep", wiki_namespaces=(1, -1))
    assert [text for text, *_ in read([whole], spec)[0]] == ["talk", "special"]


def test_the_last_revision_counts(tmp_path: Path) -> None:
    one = page(1, "new").replace("<revision>", "<revision><text>old</text></revision>\n<revision>")
    (tmp_path / "a.xml").write_bytes(dump([one, page(2, "")]))
    assert [text for text, *_ in read([listed(tmp_path / "a.xml")])[0]] == ["new", ""]


@pytest.mark.parametrize(
    ("broken", "detail"),
    [
        (page(2, "x").replace("<title>", "<title"), "not well-formed"),
        (page(2, "x").replace("<id>2</id>", "<id>two</id>"), "its id is 'two'"),
        (page(2, "&amp;").replace("&amp;amp;", "&nosuch;"), "undefined entity"),
    ],
)
def test_a_broken_page_is_a_reject_and_the_rest_goes_on(
    broken: str, detail: str, tmp_path: Path
) -> None:
    (tmp_path / "a.xml").write_bytes(dump([PAGES[0], broken, PAGES[1]]))
    found, (reject,) = read([listed(tmp_path / "a.xml")])
    assert [text for text, *_ in found] == texts(2)
    assert (reject.source, reject.reason) == ("a.xml", "broken_page")
    assert detail in reject.detail
    assert reject.position == dump([PAGES[0]]).index(b"</page>") + len("</page>")


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress])
def test_a_dump_that_is_cut_gives_what_comes_before(
    compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    data = compress(dump([page(n, f"{n} " * 9000) for n in range(300)]))
    name = {bytes: "a.xml", gzip.compress: "a.xml.gz", bz2.compress: "a.xml.bz2"}[compress]
    (tmp_path / name).write_bytes(data[: len(data) * 2 // 3])
    found, (reject,) = read([listed(tmp_path / name)])
    assert [position for *_, position in found] == list(range(len(found)))
    assert 0 < len(found) < 300
    assert reject.reason == ("broken_page" if compress is bytes else "broken_file")


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Bold''' and ''italic'' [[Page|words]], [[plain]].", "Bold and italic words, plain."),
        ("A{{Infobox|a={{b}}}} b<ref name=x>[[note]]</ref><ref name=x /> c", "A b c"),
        ("== Head ==\ntext\n\n\n\n* one\n** two", "Head\ntext\n\none\ntwo"),
        ("{| class=x\n|-\n| cell || [[cell]]\n|}\nbehind", "behind"),
        ("[[Datei:x.jpg|thumb|A [[cap]]]]in [[Image:y.png]]front[[kategorie:Z]]", "in front"),
        ("see [[:Kategorie:Z|here]] &amp; &ndash; [http://x.org there]", "see here & – there"),
        ("<math>a^2</math>x<!-- no -->y<gallery>\nz.jpg|z\n</gallery>", "xy"),
        ("an open {{template and [[link", "an open {{template and [[link"),
        ("", ""),
    ],
)
def test_markup_is_removed(markup: str, text: str) -> None:
    remove = MarkupRemover(frozenset({"file", "image", "category", "datei", "kategorie"}))
    assert remove(markup).strip() == text


def test_files_that_are_no_dumps_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<rss><page>no dump</page></rss>")
    with pytest.raises(UsageError, match=r"a.xml is not a MediaWiki dump; for plain text give"):
        check_contents([listed(tmp_path / "a.xml")], KEEP)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "wiki").mkdir()
    (tmp_path / "wiki/a.xml.bz2").write_bytes(multistream(PAGES, 3))
    return tmp_path / "wiki"


def _lines(output: Path) -> Iterator[dict[str, Any]]:
    for path in output.glob("_meta/rejected/*"):
        yield from map(json.loads, path.read_text().splitlines())


def test_a_dataset_of_a_dump(corpus: Path, tmp_path: Path, vocab_file: str) -> None:
    flags = [f"--input={corpus}", "--task=gpt", f"--vocab_file={vocab_file}", "--num_shards=2"]
    more = ["--keep_fields=title,id:int", "--packing=none"]
    for name, workers in (("a", 1), ("b", 2)):
        given = [*flags, *more, f"--output={tmp_path / name}", f"--direct_num_workers={workers}"]
        assert main(["text", *given]) == 0
    assert shard_bytes(tmp_path / "a") == shard_bytes(tmp_path / "b") != {}
    assert main(["verify", str(tmp_path / "a")]) == 0
    manifest = json.loads((tmp_path / "a/_meta/manifest.json").read_bytes())
    assert manifest["counts"]["documents_read"] == 40
    assert "mwparserfromhell" in manifest["config"]


def test_options_of_dumps_have_no_effect_on_text(
    tmp_path: Path, vocab_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("Some text.\n")
    given = [f"--input={tmp_path}/a.txt", f"--output={tmp_path}/ds", f"--vocab_file={vocab_file}"]
    assert main(["text", *given, "--wiki_namespaces=0,1"]) == 2
    line = "--wiki_namespaces is for a MediaWiki dump, and the input is plain text; leave it out"
    assert line in capfd.readouterr().err


_FLAT = """
import resource, sys
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.work_items import list_sources
(source,) = list_sources([sys.argv[1]])
spec = DocumentSpec(sentence_splitter="whole", wiki_markup="keep")
def read():
    return sum(len(batch.keys) for batch in read_documents(source, spec))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = read()
print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_dump(tmp_path: Path) -> None:
    with (tmp_path / "a.xml").open("wb") as out:
        out.write(SITE.encode())
        for number in range(4000):
            out.write(page(number, f"word {number} " * 5000).encode())  # 200 MB
        out.write(b"</mediawiki>\n")
    line = [sys.executable, "-c", _FLAT, str(tmp_path / "a.xml")]
    count, grown = map(int, subprocess.check_output(line, text=True).split())
    assert count == 4000
    assert grown < 80
