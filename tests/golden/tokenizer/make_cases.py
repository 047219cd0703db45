#!/usr/bin/env python3
"""Writes the tokenizer goldens from independent implementations (tiktoken, Hugging Face tokenizers).

usage: make_cases.py GPT2_DIR     (a folder with OpenAI's encoder.json and vocab.bpe)
needs: pip install tiktoken tokenizers

  gpt2_cases.json    hard strings and their GPT-2 ids by tiktoken
  small/             a small byte-level BPE vocabulary trained on the text below, in both layouts
  small_cases.json   the same strings and their ids by tokenizers
"""
import json
import pathlib
import sys

import tiktoken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""

SPACES = [0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x1F, 0x85, 0xA0, 0x1680, 0x180E, 0x2003, 0x200B, 0x2028,
          0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
CASES = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", "\t\t x", "a  b", "a   b",
    "a \n b", "line one\r\nline two\r\n\r\n\tindented\t\ttwice  \n", "trailing   ", "\n\n\nx",
    " \n \n", "hello world", " hello  world ", "Hello, world! How are you?",
    "I'm you're he'll we've they'd it's don't can't", "DON'T I'M IT'S", "'s 't 're 've 'm 'll 'd",
    "''s 'S 'sx 'rex 'v", "<|endoftext|>", "a<|endoftext|>b", "<|endoftext", "non\u00a0breaking\u00a0 space",
    "\u3000ideographic\u3000\u3000space", "👨‍👩‍👧‍👦 family", "🏳️‍🌈🇩🇪👍🏽", "e\u0301 n\u0303 combining",
    "café naïve Ünïcödé", "²³¼Ⅷ x² ½ ٣٤ ① 𝟜", "ภาษาไทย สวัสดี", "हिन्दी में नमस्ते", "日本語のテキスト。",
    "한국어 텍스트", "Привет, мир!", "שלום עולם", "مرحبا بالعالم", "𝒳𝒴𝒵 math", "a\u0000b\u0000", "\u0000",
    "x = [1, 2.5, -3e10]; // comment", "for (int i = 0; i < n; ++i) {\n    sum += a[i];\n}\n",
    "https://example.com/a?b=c&d=%20", "1234567890 1,000,000 3.14159", "snake_case camelCase __init__",
    "# ## ### ####", "!!!???...", "a" * 100, " " * 50, " " * 50 + "x", "ab" * 64, "\n" * 33, "=" * 79,
    "�", "x�y", "\u00ad\u200d\u2060", "ǅǈ ʰ ªº", "Ω Ω K Å", "ß ẞ ﬁ", "\U0010ffff", "\ue000",
    "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer",
    "ROMEO:\nBut, soft! what light through yonder window breaks?\n",
] + [c + chr(s) + d for s in SPACES for c, d in [("a", "b"), ("a ", " b"), ("", ""), ("a", chr(s) + "b")]]

SAMPLE = """
The small vocabulary of these tests is trained on this page and on nothing else, so that nobody's
text has to be shipped. It talks of tokens and bytes, of words and spaces, of lines that end and
lines that don't. There's a rule for contractions: it's, we've, they'd, I'll, you're, I'm, can't.
Numbers are kept apart from letters: 1, 12, 123, 1999, 2024, 3.14. So is punctuation, such as
(brackets), [lists], {braces}, "quotes", dashes -- and ellipses... The longest word here is
tokenization, and the words token, tokens, tokenizer and tokenized share its first letters.
To be, or not to be, that is the question: whether it is nobler in the mind to suffer the slings
and arrows of outrageous fortune, or to take arms against a sea of troubles, and by opposing end
them. To die, to sleep; no more; and by a sleep to say we end the heartache and the thousand
natural shocks that flesh is heir to. All the world's a stage, and all the men and women merely
players: they have their exits and their entrances, and one man in his time plays many parts.
for (int i = 0; i < n; ++i) { sum += a[i]; }   return sum;      // spaces    of    many    widths
aaaa aaaaaaaa aaaaaaaaaaaaaaaa ==== ======== ---- -------- #### ######## \n\n\n\n\t\t\t\t
café naïve über señor straße 日本 日本語 ภาษา हिन्दी привет мир
""" * 3


def byte_map():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in keep]
    return {**{chr(b): b for b in keep}, **{chr(256 + i): b for i, b in enumerate(rest)}}


def write(path, value):
    lines = ",\n".join(json.dumps(v) for v in value)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def gpt2(directory):
    to_byte = byte_map()
    encoder = json.loads((directory / "encoder.json").read_text(encoding="utf-8"))
    ranks = {bytes(to_byte[c] for c in token): i for token, i in encoder.items()
             if token != "<|endoftext|>"}
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks,
                             special_tokens={"<|endoftext|>": 50256})


def train_small():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([SAMPLE], trainers.BpeTrainer(
        vocab_size=556, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    folder = HERE / "small"
    folder.mkdir(exist_ok=True)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    vocab = {**model["vocab"], "<|endoftext|>": len(model["vocab"])}
    (folder / "encoder.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    plain = Tokenizer.from_str(tokenizer.to_str())  # end of text stays ordinary text in the goldens
    tokenizer.add_special_tokens(["<|endoftext|>"])
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=False), encoding="utf-8")
    return plain


def main():
    encoding = gpt2(pathlib.Path(sys.argv[1]))
    cases = list(dict.fromkeys(CASES))
    write(HERE / "gpt2_cases.json",
          [{"text": c, "ids": encoding.encode(c, disallowed_special=())} for c in cases])
    small = train_small()
    write(HERE / "small_cases.json",
          [{"text": c, "ids": small.encode(c, add_special_tokens=False).ids} for c in cases])


main()
