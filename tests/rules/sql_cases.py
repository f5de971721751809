"""Filters and messages by which ours is compared with RocketMQ's: some chosen, some drawn."""

from __future__ import annotations

from random import Random

from cometmq.errors import BadFilter
from cometmq.rules.filters.sql92_parser import evaluator_of

MESSAGES: list[dict[str, str]] = [
    {},
    {"a": "1", "b": "2", "c": "x", "flag": "true"},
    {"a": "5", "b": "5", "c": "it's", "flag": "FALSE"},
    {"a": "-7", "b": "2.25", "c": "abc", "flag": "yes"},
    {"a": "abc", "b": "1e3", "c": "", "A": "upper"},
    {"a": "3000000000", "b": "-0.0", "c": "NaN"},
    {"a": "9223372036854775807", "b": "0.0", "c": "Infinity"},
    {"a": "9223372036854775808", "b": " 4 ", "c": "0x1p3"},
    {"a": "+5", "b": "5d", "c": "TAGS || x", "flag": "tRuE"},
    {"a": "007", "b": ".5", "c": "\u0663", "$x_1": "1"},
    {"a": "\u0665", "b": "1_0", "c": "naïve \U0001f600", "_": "under"},
    {"a": "2147483648", "b": "1e400", "c": "a%b"},
    {"a": " 5", "b": "5.", "c": "-", "flag": " true"},
    {"b": "7", "c": "abcabc"},
]

CHOSEN = r"""
a = 1
a = 5
a = '5'
5 = a
'5' = a
a = 5.0
a <> 5
a <> '5'
a = b
a <> b
a > b
a >= b
a < b
a <= b
a > 1
a > 1.5
1 < a
a >= 5
a < 5l
a < 5L
a > -8
a > - 8
a > +4
a > + + 4
a > - - 4
a > -a
-a = 5
-a IS NULL
- 5 = -5
-(a = 5)
-(a = 5) IS NULL
a = 9223372036854775807
a = 9223372036854775808
a = -9223372036854775808
a = -9223372036854775807
a = 2147483647
a = 2147483648
a > 2147483647
a > 2147483648
a > 2147483648L
a = 0
a = 00
a = 007
a = 0L
b = 0.5
b = .5
b = 5.
b = 5.e0
b = 5E0
b = 5e+0
b = 1e3
b = 1e309
b = 1e-400
b = 4.9e-324
b = 2e-324
b = 0.0
b > 0.0
b > -0.5
b < 1e308
b = 2.25
b = 2.25d
b >= 2.25 AND b <= 2.25
c = 'x'
c = 'it''s'
c = 'it'
c = ''
c <> ''
c = "x"
c > 'a'
c > 5.5
c = 5.5
c < 5.5
c IS NULL
c is not null
C IS NULL
A = 'upper'
a IS NULL OR b IS NOT NULL
a IS NULL IS NULL
(a IS NULL) = TRUE
(a IS NULL) = FALSE
(a IS NULL) <> TRUE
TRUE = (a IS NULL)
(a = 5) = (b = 5)
(a = 5) = 'true'
'true' = (a = 5)
(a = 5) = 5
(a = 5) IS NULL
(a = 5) > 1
flag
NOT flag
flag = TRUE
flag = FALSE
flag <> TRUE
TRUE = flag
flag = true
flag AND a = 5
flag OR a = 5
missing
NOT missing
missing = 1
missing <> 1
missing = missing
missing <> missing
missing > 1
missing = a
a = missing
a <> missing
missing IS NULL
NOT (missing = 1)
missing = 1 OR a = 5
missing = 1 AND a = 5
a = 5 OR missing = 1
a = 5 AND missing = 1
NOT (missing = 1 AND a = 5)
TRUE
FALSE
NULL
NOT TRUE
NOT NULL
NULL IS NULL
TRUE IS NULL
1 IS NULL
1
1 = 1
1 = 2
1 = 1.0
1.5 = 1.5
1 < 2.5
2.5 > 1
'a'
'a' = 'a'
'a' = 'b'
'5' = 5
5 = '5'
5 = 'x'
'x' = 5
TRUE = TRUE
TRUE = FALSE
TRUE = 1
1 = TRUE
'true' = TRUE
TRUE = 'true'
a = NULL
a <> NULL
NULL = a
NULL = NULL
a > NULL
a > TRUE
a > 'x'
'x' < a
TRUE < a
a IN ('1', '5')
a IN ('1')
a NOT IN ('1', '5')
a IN (1, 5)
a IN ()
a IN '5'
'a' IN ('a')
5 IN ('5')
(a) IN ('5')
missing IN ('1')
missing NOT IN ('1')
NOT missing IN ('1')
a IN ('1', '2', '3', '4', '5', '6', '7')
a NOT IN ('1', '2', '3', '4', '5', '6', '7')
c IN ('it''s', '')
a BETWEEN 1 AND 5
a BETWEEN 5 AND 1
a BETWEEN 5 AND 5
a NOT BETWEEN 1 AND 5
a NOT BETWEEN 5 AND 1
a BETWEEN -10 AND 5
a BETWEEN 5 AND -10
b BETWEEN 0.5 AND 5
b BETWEEN 1 AND 2.5
b NOT BETWEEN 0.5 AND 5.5
a BETWEEN '1' AND '5'
a BETWEEN 1 AND '5'
a BETWEEN '1' AND 5
a BETWEEN NULL AND 5
a BETWEEN 1 AND NULL
a BETWEEN 1 AND TRUE
a BETWEEN b AND 5
a BETWEEN 1 AND b
a BETWEEN b AND b
5 BETWEEN a AND 10
'5' BETWEEN 1 AND 10
missing BETWEEN 1 AND 5
missing NOT BETWEEN 1 AND 5
a BETWEEN 1 AND 5 AND b = 5
a BETWEEN 1 AND 5 OR b = 5
a BETWEEN (1) AND (5)
(a BETWEEN 1 AND 5) IS NULL
a BETWEEN 1 AND 5 BETWEEN 1 AND 5
c CONTAINS 'b'
c CONTAINS ''
c NOT CONTAINS 'b'
c NOT CONTAINS ''
c CONTAINS b
c CONTAINS 5
missing CONTAINS 'a'
missing NOT CONTAINS 'a'
NOT missing CONTAINS 'a'
NOT (missing CONTAINS 'a')
c STARTSWITH 'a'
c NOT STARTSWITH 'a'
c startswith ''
c ENDSWITH 'c'
c NOT ENDSWITH 'c'
c endswith 'bc'
missing STARTSWITH 'a'
missing NOT ENDSWITH 'a'
5 CONTAINS '5'
'abc' CONTAINS 'b'
'abc' NOT STARTSWITH 'a'
(a = 5) CONTAINS 'e'
(a = 5) NOT CONTAINS 'e'
-a CONTAINS '5'
c CONTAINS 'a' CONTAINS 'b'
c CONTAINS 'a' NOT CONTAINS 'b'
c CONTAINS '%'
c CONTAINS 'ï'
c ENDSWITH '😀'
c LIKE 'a%'
a + 1 = 2
a * 2 = 4
a == 5
a != 5
a = 5 AND
AND a = 5
a = 5 AND AND b = 5
a =
= 5
(a = 5
a = 5)
()
((a = 5))
((((((((a))))))))
(a)
(5) = (a)
a = 5 = TRUE
a = 5 = 5
a = 5 <> TRUE
a < 5 < 6
a = 5 AND b = 5 OR c = 'x'
c = 'x' OR a = 5 AND b = 5
(c = 'x' OR a = 5) AND b = 5
NOT a = 5
NOT (a = 5)
NOT a = 5 AND b = 5
NOT NOT (a = 5)
NOT a IS NULL
NOT (a IS NULL)
NOT a > 5
a NOT
a NOT = 5
a IS
a IS 5
a IS NOT 5
a IS NOT
a = 5 foo
a = 5 foo bar ' #
a = 5 #
a = 5 '
a = 5 foo #
a = 5 5
a = 5 (b
a = 5 , b
a = 5 'x'
a b
a = 5;
a = 5 NULL
a = 5 NOT b
a = 5 IS foo
a = 5 BETWEEN
12abc = 5
a = 12abc
a = 0x10
a = 1.2.3
a=5
a<>5
a>=5
a<=5AND b=5
a=5OR b=5
a = 5 -- the end
-- first
a = -- five
a = 5 - - 5
a = --5
a = /* five */ 5
a = /* * ** / */ 5
a /* = 6 or a */ = 5
a = 5 /* open
a = 5 */ 6
/**/ a = 5
/***/ a = 5
a = 5 /**
$x_1 = 1
$x_1 = '1'
_ = 'under'
_ IS NULL
x.y = 1
a-b = 1
naïve = 1
Between BETWEEN 1 AND 2
NULL AND TRUE
NULL OR TRUE
NULL AND FALSE
NULL OR FALSE
NOT (NULL AND FALSE)
TRUE AND a = 5
FALSE OR a = 5
FALSE AND a > 'x'
a > 5 OR c = 'x'
c = 'x' OR a > 5
a > 5 AND c = 'x'
c = 'x' AND a > 5
a > 5 OR TRUE
TRUE OR a > 5
FALSE AND a > 5
a > 5 AND FALSE
a = 1e0
a = 1e
a = 1e+
a = .
a = 5..
a = '
a = 'x''
a = 'x'''
a = ''''
c = 'IT''S'
a=5 and b=5
a=5 aNd b=5
a=5 or not b=5
TAGS = 'x'
""".strip("\n").split("\n")

CHOSEN += [
    "",
    " ",
    "\t\n\f\r",
    "a\t=\n5",
    "a = 5 --x\n AND b = 5",
    "a = 5 --x\r AND b = 5",
    "a = 5 --x\r\n AND b = 5",
    "--x\na = 5",
    "a\x0b= 5",
    "a\xa0= 5",
    "a = 5 \x00",
    "\u212a = 1",
    "\u017f = 1",
    "a = \uff15",
    "a = '\n'",
    "a = 5 /* \n */ AND b = 5",
    "(" * 50 + "a = 5" + ")" * 50,
    "NOT " * 51 + "(a = 5)",
    "a > " + "- " * 50 + "4",
    " OR ".join(f"a = '{n}'" for n in range(200)),
    " AND ".join(f"a <> '{n}'" for n in range(200)),
    "a IN (" + ", ".join(f"'{n}'" for n in range(500)) + ")",
]

_WORDS = (
    *("a", "b", "c", "flag", "missing", "1", "5", "2.25", "-7", "3000000000", "'5'", "'abc'", "''"),
    *("TRUE", "FALSE", "NULL", "(a = 5)", "(b > 2)", "-a", "+5", "'true'", "0.5"),
)
_RANGES = ("1 AND 5", "0.5 AND 5", "a AND b", "-7 AND 1e3", "b AND 9223372036854775807")
_LISTS = ("('1', '5')", "('abc')", "('x', 'abc', 'it''s', '5', '-7')")


def drawn(seed: int, count: int) -> list[str]:
    """Filters that are mostly well formed, and some with a word too many or too few."""
    rng = Random(seed)
    return [_mishap(rng, _condition(rng, rng.randint(0, 3))) for _ in range(count)]


def _condition(rng: Random, depth: int) -> str:
    if depth == 0:
        return _test(rng)
    joiner = rng.choice((" AND ", " OR "))
    parts = [_condition(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    text = joiner.join(parts)
    return rng.choice(("{}", "({})", "NOT ({})", "({}) IS NULL", "({}) = TRUE")).format(text)


def _test(rng: Random) -> str:
    left, right = rng.choice(_WORDS), rng.choice(_WORDS)
    may_not = rng.choice(("", "NOT "))
    text = rng.choice(("'b'", "'abc'", "'5'", "''"))
    return rng.choice(
        (
            f"{left} {rng.choice(('=', '<>', '<', '<=', '>', '>='))} {right}",
            f"{left} {may_not}BETWEEN {rng.choice(_RANGES)}",
            f"{left} {may_not}IN {rng.choice(_LISTS)}",
            f"{left} {may_not}{rng.choice(('CONTAINS', 'STARTSWITH', 'ENDSWITH'))} {text}",
            f"{left} IS {may_not}NULL",
        )
    )


def _mishap(rng: Random, text: str) -> str:
    if rng.random() > 0.1:
        return text
    words = text.split(" ")
    at = rng.randrange(len(words))
    words[at : at + rng.randint(0, 1)] = rng.choice(([], ["NOT"], ["("], [")"], ["5"], ["IS"]))
    return " ".join(words)


def verdicts(text: str) -> str:
    """Ours as the Java program prints RocketMQ's: X, or T F N E for each message."""
    try:
        run = evaluator_of(text)
    except BadFilter:
        return "X"
    return "".join(_verdict(run, message) for message in MESSAGES)


def _verdict(run: object, message: dict[str, str]) -> str:
    assert callable(run)
    try:
        return {None: "N", True: "T", False: "F"}[run(message.get)]
    except ValueError:
        return "E"
