"""A tokenizer.json is loaded and tried in a process of its own first, with limits.

Its regular expressions, charsmap and replacements are programs for a native library: a few of them
end the process, never end, or take all memory. So one line says that the file cannot be used. What
was tried with success is remembered beside the kernels: the next job of this user does not wait.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import version
from itertools import groupby
from typing import Any

_MOST_BYTES, _BYTES_PER_BYTE = 1 << 31, 40  # of memory, and for each byte of the file
_MOST_SECONDS, _BYTES_PER_SECOND = 20, 1 << 18  # of processor time
_MOST_GROWTH = 1000  # characters that one becomes
_MARK = "recordmill: "  # begins the child's line: what it loads may print lines too
# Regular expressions that match some of their own characters, and never nothing.
_OF_OWN_CHARACTERS = re.compile(r"[^\\.^$*?{}()&:-]+")
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from recordmill.transforms.subwords.trial import try_given; try_given()"
)
_ONE_THREAD = {
    "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "FASTOKENS_BPE_THREADS": "1",
}  # fmt: skip


@lru_cache(maxsize=2)
def find_fault(data: bytes, lines: tuple[str, ...]) -> str:
    """Returns why a tokenizer.json cannot be used, "" where it can.

    Args:
      data: the file's content, which has the form of one.
      lines: that are tokenized.
    """
    from recordmill.records.codec import jit  # numba is nothing for the child

    try:
        content = json.loads(text := data.decode("utf-8"))
        growth = _growth([content.get("normalizer"), content.get("pre_tokenizer")])
    except RecursionError:
        return "it is nested too deeply"
    except UnicodeDecodeError as error:
        return f"it is not UTF-8: {error.reason} at byte {error.start}"
    if growth > _MOST_GROWTH:
        return f"its normalizer may make more than {_MOST_GROWTH} characters of one"
    limits = {
        "bytes": _MOST_BYTES + _BYTES_PER_BYTE * len(data),
        "seconds": _MOST_SECONDS + len(data) // _BYTES_PER_SECOND,
    }
    given = json.dumps({"text": text, "lines": lines, **limits})
    tried = blake2b(given.encode(), digest_size=16)
    tried.update("".join(map(version, ("tokenizers", "fastokens"))).encode())
    use = f"tokenizer-{tried.hexdigest()}"
    if jit.folder() and jit.is_compiled(use):
        return ""
    child = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *sys.path], input=given.encode(), capture_output=True,
        env=os.environ | _ONE_THREAD, check=False,
    )  # fmt: skip
    if not child.returncode:
        jit.remember(use)
        return ""
    memory = f"it takes more than {limits['bytes'] >> 20} MiB of memory"
    if child.returncode > 0:
        told = child.stderr.decode("utf-8", "replace").rpartition(_MARK)[2].strip()
        said = told.rpartition("\n")[2] or f"it ends a process with status {child.returncode}"
        return memory if said == MemoryError.__name__ else said
    ended = signal.Signals(-child.returncode)
    if ended == signal.SIGXCPU:
        return f"{len(lines)} lines take it more than {limits['seconds']} s of processor time"
    return f"{memory}, or ends the process that loads it ({ended.name})"


def try_given() -> None:
    """Loads the tokenizer that standard input gives, and tokenizes lines: the child's program."""
    try:
        given = json.load(sys.stdin)
        _limit(given)
        _try(given["text"], given["lines"])
    except BaseException as error:  # a panic of Rust is no Exception
        said = " ".join(str(error).split()) or type(error).__name__
        sys.stderr.flush()
        os.write(2, f"\n{_MARK}{said}\n".encode("utf-8", "replace"))
        os._exit(1)
    os._exit(0)  # what libraries do at the end says nothing of the file


def _limit(given: dict[str, Any]) -> None:
    import resource

    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, given["bytes"]),
        (resource.RLIMIT_CPU, given["seconds"]),
    ):
        _, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (most if hard < 0 else min(most, hard), hard))


def _try(text: str, lines: list[str]) -> None:
    from fastokens import Tokenizer as QuickModel
    from tokenizers import Tokenizer

    model = Tokenizer.from_str(text)
    model.no_truncation()
    model.no_padding()
    for special in (False, True):
        model.encode_special_tokens = special
        for line in lines:
            model.encode_batch_fast([line], add_special_tokens=False)
    try:
        quick: Any = QuickModel.from_json_str(text)
        quick.no_truncation()
        quick.no_padding()
        for line in lines:
            quick.encode_batch_flat([line], False, False)
    except BaseException:  # then it is not used; what ends this process would end a job too
        pass


def _growth(part: Any) -> float:
    """Returns how many characters one may become by replacements, one after the other."""
    if isinstance(part, list):
        product = 1.0
        for replaces, group in groupby(part, _is_replace):
            steps = list(group)
            factors = [_growth_of_rules(steps)] if replaces else map(_growth, steps)
            for factor in factors:
                product = min(product * factor, 1e9)
        return product
    if not isinstance(part, dict):
        return 1.0
    if _is_replace(part):
        return _growth_of_rules([part])
    if part.get("type") == "Prepend":
        return max(1.0, float(len(str(part.get("prepend")))))
    if part.get("type") == "Precompiled":
        return _growth_of_charsmap(str(part.get("precompiled_charsmap")))
    return _growth(list(part.values()))


def _is_replace(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "Replace"


def _growth_of_rules(rules: Iterable[dict[str, Any]]) -> float:
    """Returns how many characters one may become by rules, of which some match others' content."""
    most = 1.0
    grown: dict[str, float] = {}  # character -> how many that are written with it one became
    for rule in rules:
        pattern, content = rule.get("pattern"), str(rule.get("content"))
        text = str(pattern.get("String", "")) if isinstance(pattern, dict) else ""
        regex = str(pattern.get("Regex", "")) if isinstance(pattern, dict) else ""
        matched = text
        if _OF_OWN_CHARACTERS.fullmatch(regex) and all(regex.split("|")):
            matched = regex
        before = max((grown.get(each, 1.0) for each in set(matched)), default=most)
        after = min(before * max(1.0, len(content) / max(len(text), 1)), 1e9)
        grown |= {each: max(after, grown.get(each, 1.0)) for each in set(content)}
        most = max(most, after)
    return most


def _growth_of_charsmap(charsmap: str) -> float:
    """Returns the bytes of the longest text that stands for characters."""
    try:
        data = base64.b64decode(charsmap)
    except ValueError:
        return 1.0  # the library says what is wrong
    texts = data[4 + int.from_bytes(data[:4], "little") :]
    return float(max(1, *map(len, texts.split(b"\0"))))
