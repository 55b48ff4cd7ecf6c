#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes byte_level.json and prefix_space.json (tokenizers), tokenizers.json (texts and their ids) and trained.json
(texts, options, and the tokenizers that are learned from them) beside this file, and the corpus of tests/fuzz. Needs PyPI's tokenizers; 0.23.3 has made the files that are here."""

import json
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
CORPUS = ["hello world, hello there: it's the world's end, isn't it? They'll say we've 1234 reasons.",
          "\u00c7a va? Le th\u00e9\u00e2tre est ferm\u00e9. \u65e5\u672c\u8a9e\u306e\u6587\u7ae0 \U0001f600\U0001f600",
          "    indented\n\n    code(x, y) = x + y;\r\n\tend"] * 3
PIECES = ["hello", "World", " the", "'s", "'ll", "'re", "I've", "'", " ' ", "12", "3.14", " ", "  ", "   ", "\n",
          "\n\n", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "th\u00e9\u00e2tre", "e\u0301", "\u65e5\u672c\u8a9e",
          "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u0661\u0662", "\u00bd", "\u2167", "\u0000", "\u001c",
          "\x7f", "\u0085", "!?", "--", "_", "\u4dbf\u9fff", "\U00031350", "\ua7cb", "\ufffd", "\U0010ffff", "<|end|>",
          "<|end|><|", "<|end|>>", "code", "\u01c5", "\u02b0", "\u0e01\u0e33", "\u0627\u0644", "x" * 40]


def tokenizer(prefix_space):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=420, show_progress=False, special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.add_tokens([AddedToken("<|end|>>", normalized=True), AddedToken("d c", normalized=False)])
    return made


def trained():
    """Few letters make many pairs equally frequent, and tokens that two merges give."""
    draw = random.Random(4)
    texts = ["".join(draw.choices("abc ", k=draw.randint(0, 60))) for _ in range(60)]
    texts += ["".join(draw.choices(PIECES, k=draw.randint(2, 12))) for _ in range(60)] + CORPUS
    cases = []
    for options in ({"vocab_size": 420}, {"vocab_size": 400, "min_frequency": 3},
                    {"vocab_size": 400, "special_tokens": ["<|end|>", "ab"], "add_prefix_space": True}):
        prefix_space = options.get("add_prefix_space", False)
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
        made.decoder = decoders.ByteLevel()
        made.train_from_iterator(texts, trainers.BpeTrainer(
            show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            **{name: value for name, value in options.items() if name != "add_prefix_space"}))
        cases.append({"options": options, "file": json.loads(made.to_str()),
                      "ids": [made.encode(text).ids for text in texts]})
    (HERE / "trained.json").write_text(json.dumps({"texts": texts, "cases": cases}) + "\n", encoding="utf-8")


def main():
    trained()
    draw = random.Random(3)
    texts = PIECES + ["", " ", "hello world", " hello  world ", "d c", "and code"]
    texts += ["".join(draw.choices(PIECES, k=draw.randint(2, 12))) for _ in range(200)]
    cases = {"texts": texts}
    for name, prefix_space in (("byte_level", False), ("prefix_space", True)):
        made = tokenizer(prefix_space)
        made.save(str(HERE / f"{name}.json"), pretty=False)
        cases[name] = [made.encode(text).ids for text in texts]
    (HERE / "tokenizers.json").write_text(json.dumps(cases) + "\n", encoding="utf-8")

    fuzz = HERE.parents[1] / "fuzz/corpus/tokenizer"
    fuzz.mkdir(parents=True, exist_ok=True)
    file = json.loads((HERE / "prefix_space.json").read_text(encoding="utf-8"))
    model = file["model"]
    model["merges"] = model["merges"][:12]
    for token in list(model["vocab"]):
        if model["vocab"][token] > 268:
            del model["vocab"][token]
    (fuzz / "pairs.json").write_text(json.dumps(file), encoding="utf-8")
    model["merges"] = [" ".join(merge) for merge in model["merges"]]
    del model["type"], file["added_tokens"]
    (fuzz / "strings.json").write_text(json.dumps(file), encoding="utf-8")


main()
