"""google-research/bert's FullTokenizer, in plain Python, from its published algorithm."""

from __future__ import annotations

import unicodedata

MAX_INPUT_CHARS_PER_WORD = 200


def is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    if char in "\t\n\r":
        return False
    return unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(char).startswith("P")


def is_chinese_char(char: str) -> bool:
    code = ord(char)
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2A6DF
        or 0x2A700 <= code <= 0x2B73F
        or 0x2B740 <= code <= 0x2B81F
        or 0x2B820 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )


def clean_text(text: str) -> str:
    output = []
    for char in text:
        if ord(char) in (0, 0xFFFD) or is_control(char):
            continue
        output.append(" " if is_whitespace(char) else char)
    return "".join(output)


def tokenize_chinese_chars(text: str) -> str:
    return "".join(f" {char} " if is_chinese_char(char) else char for char in text)


def strip_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")


def split_on_punctuation(text: str) -> list[str]:
    words: list[list[str]] = []
    start_new_word = True
    for char in text:
        if is_punctuation(char):
            words.append([char])
            start_new_word = True
        else:
            if start_new_word:
                words.append([])
            start_new_word = False
            words[-1].append(char)
    return ["".join(word) for word in words]


def basic_tokenize(text: str, *, lower_case: bool) -> list[str]:
    text = tokenize_chinese_chars(clean_text(text))
    split_tokens: list[str] = []
    for token in text.split():
        if lower_case:
            token = strip_accents(token.lower())
        split_tokens += split_on_punctuation(token)
    return " ".join(split_tokens).split()


class FullTokenizer:
    def __init__(self, tokens: list[str] | tuple[str, ...], *, lower_case: bool) -> None:
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.lower_case = lower_case
        self._known: dict[str, list[int]] = {}

    def word_chunks(self, word: str) -> list[int]:
        """Greedy longest match first; [UNK] for a word that has no spelling or is too long."""
        if len(word) > MAX_INPUT_CHARS_PER_WORD:
            return [self.ids["[UNK]"]]
        chunks = []
        start = 0
        while start < len(word):
            end = len(word)
            while start < end:
                chunk = ("##" if start else "") + word[start:end]
                if chunk in self.ids:
                    break
                end -= 1
            if start == end:
                return [self.ids["[UNK]"]]
            chunks.append(self.ids[chunk])
            start = end
        return chunks

    def tokenize(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in basic_tokenize(text, lower_case=self.lower_case):
            if word not in self._known:
                self._known[word] = self.word_chunks(word)
            ids += self._known[word]
        return ids
