"""Objectives as arguments: a class for each, whose attributes have the names of the flags.

The flags of `recordmill text` are read into the same classes, so a flag and an argument of one name
mean the same and have the same default.
"""

from __future__ import annotations

from recordmill.transforms.text.bert_tasks import Bert, Classify, Mlm, MlmTokens
from recordmill.transforms.text.language_tasks import T5, Gpt, T5Tokens, Ul2
from recordmill.transforms.text.task import TextTask

TASKS: dict[str, type[TextTask]] = {
    task.name: task for task in (Bert, Mlm, MlmTokens, Classify, Gpt, T5, T5Tokens, Ul2)
}
