"""Subword tokenizers from the files of other libraries: byte-level BPE, Unigram, WordPiece."""
