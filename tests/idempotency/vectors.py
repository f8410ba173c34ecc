"""Writes vectors.jsonl: what Python makes of documents, which the keys of SQL and Rust are held to.

    python3 tests/idempotency/vectors.py > tests/idempotency/vectors.jsonl
"""

import hashlib
import json

DOCUMENTS = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    '""',
    '"text"',
    "[]",
    "{}",
    '{"": ""}',
    "[[], {}, [[]], {\"a\": {}}]",
    '{ "b" : 2 , "a" : [ 1 , 2 , null , true ] }',
    '{"order": "o-812", "total": "12.50", "lines": [{"sku": "a", "n": 2}, {"n": 1, "sku": "b"}]}',
    # By code point, not by length, letter case or locale.
    '{"b": 1, "B": 2, "a": 3, "aa": 4, "A": 5, "_": 6, "10": 7, "9": 8, "": 9, " ": 10, "a b": 11, "a-b": 12}',
    '{"\\u00e9": 1, "e\\u0301": 2, "z": 3, "e": 4, "\\u00df": 5, "ss": 6, "\\u0131": 7, "i": 8}',
    # Beyond the basic plane: UTF-16 would have it before U+E000 to U+FFFF.
    '{"\\ud83d\\ude00": 1, "\\uffff": 2, "\\ue000": 3, "\\ud7ff": 4, "\\ufb01": 5}',
    '{"a\\ud83d\\ude00": 1, "a\\uff5e": 2, "a": 3}',
    # Deep ones are sorted too.
    '[{"z": [{"y": {"b": [], "a": 1}, "x": 0}], "a": "z"}]',
    # Escapes.
    '"\\u0001\\u0007\\b\\t\\n\\u000b\\f\\r\\u001b\\u001f \\u007f\\u0080\\u009f\\u2028\\u2029"',
    '"\\"\\\\\\/\\u002f\\u003c\\u0026"',
    '{"\\"": 1, "\\\\": 2, "\\n": 3, "\\u001f": 4, "/": 5}',
    '"Gr\\u00fc\\u00dfe, \\u6771\\u4eac, \\u03a9, \\ud834\\udd1e"',
    '"Grüße, 東京, Ω, 𝄞"',
    # The same name twice: the last one counts.
    '{"a": 1, "b": 2, "a": 3}',
    # Integers beyond what a double holds, and beyond 64 bits.
    "[9007199254740992, 9007199254740993, -9007199254740993, 9223372036854775807, -9223372036854775808]",
    "[9223372036854775808, 18446744073709551615]",
    "[18446744073709551616, 123456789012345678901234567890, -9223372036854775809]",
    # Floats whose forms agree.
    "[1.5, -2.25, 0.1, 100.0, 1.0, 0.0001, 123456789.125, 3.141592653589793]",
    json.dumps([[[[[[[[[[{"deep": list(range(12))}]]]]]]]]]]),
]

for document in DOCUMENTS:
    value = json.loads(document)
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    vector = {"document": document, "canonical": canonical, "key": hashlib.sha256(canonical.encode()).hexdigest()}
    if "18446744073709551616" in document:
        vector["beyond_64_bits"] = True
    print(json.dumps(vector))
