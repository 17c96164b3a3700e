"""The check of payloads by JSON Schema refuses nothing that the schema accepts, and names what is wrong."""

import json
import random
import time
from collections.abc import Sequence
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema_rs
import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from reactor.database.connection import Connection

JsonSchema = dict[str, Any] | bool
CASES = 4000
NAMES = ("a", "b", "c", "year", "x-y", "é")
TEXTS = ("", "a", "ab", "abc1", "A b", "é", "a\nb", "2026", "0", "null", 'q"')
NUMBERS = (0, 1, -1, 2, 3.5, 0.1, 0.3, 1.0, 10, 1e20, -2.5, 100)
PATTERNS = ("^a", "b$", "^[a-c]+$", "^\\d{4}$", "a|b", "^(ab)?c?\\w*$", "[^a]", "^.$", "\\.", "^$")


# Checked directly: payload_complaints accepts where the check itself fails.
COMPLAINTS = """select array(
    select coalesce((reactor.value_complaints(p, s, s, 'payload', 0, 20000)).complaints, '[]')::text
    from unnest($1::jsonb[], $2::jsonb[]) with ordinality c (p, s, n) order by n)"""


async def complaints_of(connection: Connection, cases: Sequence[tuple[Any, JsonSchema]]) -> list[list[dict[str, str]]]:
    payloads, schemas = [json.dumps(payload) for payload, _ in cases], [json.dumps(schema) for _, schema in cases]
    return [json.loads(each) for each in await connection.fetchval(COMPLAINTS, payloads, schemas)]


class Chance(random.Random):
    """Schemas as pydantic generates them, and values that nearly fit them. `is_exact`: ours decides the schema exactly
    and does not accept in case of doubt."""

    is_exact = True

    def schema(self, depth: int = 0) -> JsonSchema:
        kinds = ["text", "number", "integer", "boolean", "null", "enum", "const", "types", "any"]
        if depth < 3:
            kinds += ["object"] * 5 + ["array"] * 3 + ["anyOf"] * 2 + ["oneOf", "allOf", "not", "ref"]
        made = self._schema(self.choice(kinds), depth)
        if isinstance(made, dict) and self.random() < 0.2:
            made |= {"title": "Title", "description": "about it"}
        return made

    def _schema(self, kind: str, depth: int) -> JsonSchema:
        match kind:
            case "text":
                return {"type": "string"} | self.some(
                    minLength=self.randint(0, 3), maxLength=self.randint(0, 4), pattern=self.choice(PATTERNS)
                )
            case "number" | "integer":
                return {"type": kind} | self.some(
                    minimum=self.choice(NUMBERS),
                    maximum=self.choice(NUMBERS),
                    exclusiveMinimum=self.choice(NUMBERS),
                    exclusiveMaximum=self.choice(NUMBERS),
                    multipleOf=self.choice((1, 2, 0.5)),
                )
            case "boolean" | "null":
                return {"type": kind}
            case "enum":
                return {"enum": [self.value() for _ in range(3)]}
            case "const":
                return {"const": self.value()}
            case "types":
                return {"type": self.sample(["string", "integer", "number", "null", "object", "array"], 2)}
            case "any":
                return self.choice(({}, True, {"type": "object"}, {"type": "array"}, {"title": "Any"}, False))
            case "object":
                properties = {name: self.schema(depth + 1) for name in self.sample(NAMES, self.randint(0, 3))}
                return {"type": "object", "properties": properties} | self.some(
                    required=self.sample(NAMES, self.randint(0, 2)),
                    additionalProperties=self.choice((False, True, self.schema(depth + 1))),
                    minProperties=self.randint(0, 2),
                    maxProperties=self.randint(0, 3),
                    propertyNames={"maxLength": 1},
                    patternProperties={self.choice(("^[a-b]$", "-")): self.schema(depth + 1)},
                )
            case "array":
                return {"type": "array", "items": self.schema(depth + 1)} | self.some(
                    prefixItems=[self.schema(depth + 1) for _ in range(self.randint(1, 2))],
                    minItems=self.randint(0, 2),
                    maxItems=self.randint(0, 3),
                    uniqueItems=True,
                )
            case "anyOf" | "oneOf" | "allOf":
                self.is_exact &= kind != "oneOf"  # as anyOf
                return {kind: [self.schema(depth + 1) for _ in range(self.randint(1, 3))]}
            case "not":
                inner = self._schema(self.choice(("enum", "const", "types", "boolean")), depth)
                return {"not": inner}
            case _:
                return {"$ref": self.choice(("#/$defs/Node", "#/$defs/Tag"))} | self.some(required=["a"])

    def root(self) -> JsonSchema:
        """Of a payload: an object, with a recursive model among its definitions."""
        made = self._schema("object", 0)
        assert isinstance(made, dict)
        node = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/Node"}}}
        return made | {"$defs": {"Node": node | {"required": ["a"]}, "Tag": {"enum": ["a", "b", 1]}}}

    def some(self, **keywords: Any) -> dict[str, Any]:
        return {name: value for name, value in keywords.items() if self.random() < 0.25}

    def value(self, depth: int = 0) -> Any:
        kind = self.randrange(5 if depth > 2 else 7)
        if kind < 4:
            return self.choice((TEXTS, NUMBERS, (True, False), (None, "a"))[kind])
        if kind == 4:
            return self.choice(NAMES)
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.randrange(4))]
        return {self.choice(NAMES): self.value(depth + 1) for _ in range(self.randrange(4))}

    def near(self, schema: JsonSchema, root: dict[str, Any], depth: int = 0) -> Any:
        """A value that tends to fit."""
        if isinstance(schema, bool) or self.random() < 0.1 or depth > 6:
            return self.value(depth)
        if "$ref" in schema:
            return self.near(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, depth + 1)
        for name in ("anyOf", "oneOf", "allOf"):
            if name in schema:
                return self.near(self.choice(schema[name]), root, depth + 1)
        if "enum" in schema:
            return self.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                members = schema.get("properties", {})
                names = {name for name in members if self.random() < 0.8} | set(schema.get("required", ()))
                return {name: self.near(members.get(name, True), root, depth + 1) for name in sorted(names)}
            case "array":
                return [self.near(schema.get("items", True), root, depth + 1) for _ in range(self.randrange(4))]
            case "string":
                return self.choice(TEXTS)
            case "number" | "integer":
                return self.choice(NUMBERS)
            case "boolean":
                return self.random() < 0.5
            case _:
                return schema.get("const", self.value(depth))


async def test_the_check_agrees_with_a_validator_of_json_schema(connection: Connection) -> None:
    """F1, F13: 4,000 random schemas and payloads. What the schema accepts is never refused; what it refuses is refused,
    too, except where the check accepts in case of doubt."""
    chance = Chance(20261119)
    refused = 0
    for _ in range(CASES // 500):
        cases, exact = [], []
        for _ in range(500):
            chance.is_exact = True
            schema = chance.root()
            assert isinstance(schema, dict)
            cases.append((chance.near(schema, schema), schema))
            exact.append(chance.is_exact)
        for (payload, schema), is_exact, found in zip(
            cases, exact, await complaints_of(connection, cases), strict=True
        ):
            fits = jsonschema_rs.Draft202012Validator(schema).is_valid(payload)
            refused += not fits
            assert not (fits and found), (payload, schema, found)
            doubtful = any("é" in text or "\n" in text for text in texts_of(payload))
            assert fits or found or not is_exact or doubtful, (payload, schema)
    assert CASES / 5 < refused < CASES * 4 / 5  # both are tested


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in (name, *texts_of(item))]
    if isinstance(value, list):
        return [text for item in value for text in texts_of(item)]
    return [value] if isinstance(value, str) else []


class Level(Enum):
    LOW = "low"
    HIGH = 2


class Row(BaseModel):
    year: int = Field(ge=1900, lt=2100)
    name: str = Field(default="x", max_length=5, pattern=r"^[a-z]+$")


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Tree(BaseModel):
    value: float | None = None
    children: list["Tree"] = []


class Everything(BaseModel):
    model_config = ConfigDict(extra="forbid")

    file: str
    rows: list[Row] = []
    level: Level = Level.LOW
    pair: tuple[int, str] | None = None
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    tree: Tree | None = None
    counts: dict[str, int] = {}
    choice: int | list[str] = 0
    day: date | None = None
    at: datetime | None = None
    key: UUID | None = None
    tags: set[str] = set()
    share: float = Field(default=0.5, multiple_of=0.1)


FITS: list[dict[str, Any]] = [
    {"file": "a"},
    {"file": "a", "rows": [{"year": 2026}, {"year": 1900.0, "name": "abc"}], "level": 2},
    {"file": "", "pair": [1, "x"], "pet": {"kind": "cat", "lives": 9}, "choice": ["x"], "share": 0.3},
    {"file": "a", "tree": {"children": [{"value": 1}, {"children": [{"value": None}]}]}, "counts": {"a b": 1}},
    {"file": "a", "day": "2024-02-29", "at": "2026-01-31 08:00Z", "key": "6ba7b8109dad11d180b400c04fd430c8"},
    {
        "file": "a",
        "day": "2026-01-31T00:00:00",
        "at": "1767225600",
        "key": "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    },
    {"file": "a", "at": "2026-01-31T08:00:00.123456789+01:00", "share": 0.30000000000000004},
]
# What is wrong with each, as all of its complaints.
WRONG: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {"payload.file": "is required"}),
    ({"file": 1, "x": 2}, {"payload.file": "must be a string", "payload.x": "is not a known field"}),
    (
        {"file": "a", "rows": [{"year": 2026}, {"name": "abcdef"}, {"year": 1800, "name": "A"}, 7]},
        {
            "payload.rows[1].year": "is required",
            "payload.rows[1].name": "must have at most 5 characters",
            "payload.rows[2].year": "must be at least 1900",
            "payload.rows[2].name": "must match the pattern ^[a-z]+$",
            "payload.rows[3]": "must be an object",
        },
    ),
    ({"file": "a", "rows": [{"year": "2026"}]}, {"payload.rows[0].year": "must be an integer"}),
    ({"file": "a", "rows": [{"year": 2100}]}, {"payload.rows[0].year": "must be less than 2100"}),
    ({"file": "a", "level": "mid"}, {"payload.level": 'must be one of "low", 2'}),
    ({"file": "a", "pair": [1]}, {"payload.pair": "must have at least 2 elements"}),
    ({"file": "a", "pair": [1, 2]}, {"payload.pair[1]": "must be a string"}),
    ({"file": "a", "pet": {"kind": "cat"}}, {"payload.pet.lives": "is required"}),
    ({"file": "a", "pet": {"kind": "cow"}}, {"payload.pet.kind": 'must be one of "cat", "dog"'}),
    ({"file": "a", "pet": {}}, {"payload.pet.kind": "is required"}),
    (
        {"file": "a", "tree": {"children": [{"value": "x"}]}},
        {"payload.tree.children[0].value": "must be a number or null"},
    ),
    ({"file": "a", "counts": {"n": 1.5}}, {"payload.counts.n": "must be an integer"}),
    ({"file": "a", "choice": {}}, {"payload.choice": "must be an integer or an array"}),
    ({"file": "a", "choice": [1]}, {"payload.choice[0]": "must be a string"}),
    ({"file": "a", "day": "tomorrow"}, {"payload.day": "must be a date, as in 2026-01-31"}),
    ({"file": "a", "day": "2026-02-29"}, {"payload.day": "has a day that does not exist"}),
    ({"file": "a", "at": "2026-13-01T00:00:00Z"}, {"payload.at": "has a month that does not exist"}),
    ({"file": "a", "key": "k"}, {"payload.key": "must be a UUID"}),
    ({"file": "a", "tags": ["x", "x"]}, {"payload.tags": "has an element twice"}),
    ({"file": "a", "share": 0.25}, {"payload.share": "must be a multiple of 0.1"}),
]


async def test_what_a_model_accepts_is_accepted(connection: Connection) -> None:
    """F1: also what pydantic reads beyond the formats of dates, times and UUIDs."""
    schema = Everything.model_json_schema()
    for payload in FITS:
        Everything.model_validate(payload)
    assert await complaints_of(connection, [(payload, schema) for payload in FITS]) == [[]] * len(FITS)


async def test_complaints_name_the_fields_of_a_payload_that_its_model_refuses(connection: Connection) -> None:
    """F13: all of them, each with its path."""
    schema = Everything.model_json_schema()
    found = await complaints_of(connection, [(payload, schema) for payload, _ in WRONG])
    listed = [{one["field"]: one["message"] for one in each} for each in found]
    assert listed == [wrong for _, wrong in WRONG]
    for payload, _ in WRONG:
        if payload.get("tags") is None and payload.get("rows") != [{"year": "2026"}]:  # pydantic converts these
            with pytest.raises(ValidationError):
                Everything.model_validate(payload)


@pytest.mark.parametrize("kind", [date, datetime, UUID])
async def test_no_text_that_pydantic_reads_is_refused_because_of_its_format(connection: Connection, kind: type) -> None:
    chance = random.Random(7)
    seeds = (
        *("2026-01-31", "2024-02-29T23:59:59.5Z", "2026-01-31 08:00", "1767225600", "-5", "2026-01-31T00:00:00"),
        *(
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}",
            " 2026-01-01",
            "0001-01-01",
        ),
    )
    texts = list(seeds)
    for _ in range(3000):
        characters = list(chance.choice(seeds))
        for _ in range(chance.randint(1, 3)):
            characters[chance.randrange(len(characters))] = chance.choice("0123456789-:TZ+. e_abf")
        texts.append("".join(characters))
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    schema = adapter.json_schema()
    for text, found in zip(texts, await complaints_of(connection, [(text, schema) for text in texts]), strict=True):
        try:
            adapter.validate_python(text)
        except ValidationError:
            continue
        assert not found, text


@pytest.mark.parametrize(
    ("payload", "schema"),
    [
        ({"a": 1}, {"unevaluatedProperties": False, "if": {}, "then": False, "dependentRequired": {"a": ["b"]}}),
        ({"a": "x"}, {"properties": {"a": {"pattern": "(?<=y)x(?P<n>z)\\bq"}}}),
        ({"a": "x"}, {"properties": {"a": {"pattern": "(x{99}){99}"}}}),
        ({"a": "x"}, {"properties": {"a": {"pattern": "*+("}}}),
        ({"a": "é"}, {"properties": {"a": {"pattern": "^\\w$"}}}),
        ({"a": 1}, {"properties": {"a": {"$ref": "#/$defs/Missing"}}}),
        ({"a": 1}, {"properties": {"a": {"$ref": "https://example.org/schema"}}}),
        ({"a": 1}, {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}),
        ({"a": 1}, {"$ref": "#"}),
        ({"a": 1}, {"properties": {"a": {"type": "decimal"}}}),
        ({"a": 1}, {"required": "a", "properties": ["a"], "minProperties": "many"}),
        ({"a": 1}, {"properties": {"a": {"minimum": "x", "enum": 3, "items": 1, "allOf": {}}}}),
        ({"a": 1e300}, {"properties": {"a": {"multipleOf": 7}}}),
        ({"a": 0.1}, {"properties": {"a": {"maximum": 0.09999999999999999999}}}),
        ({"a": 1}, True),
        ({"a": 1}, "no schema"),
        ({"a": 1}, []),
    ],
)
async def test_a_schema_that_can_not_be_decided_accepts(connection: Connection, payload: Any, schema: Any) -> None:
    """F1: other keywords, patterns of other engines, references elsewhere, and what is no schema at all."""
    query = "select reactor.payload_complaints($1, $2)"
    assert await connection.fetchval(query, json.dumps(payload), json.dumps(schema)) is None


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"c": value}
    return value


NODE = {"type": "object", "properties": {"c": {"anyOf": [{"$ref": "#/$defs/N"}, {"$ref": "#/$defs/N"}]}}}
HOSTILE: list[tuple[str, Any, dict[str, Any]]] = [
    ("each level doubles the work", nested(40), {"$ref": "#/$defs/N", "$defs": {"N": NODE | {"required": ["z"]}}}),
    ("deep", nested(900), {"$ref": "#/$defs/N", "$defs": {"N": NODE}}),
    ("a pattern that backtracks", {"a": "x" * 900_000}, {"properties": {"a": {"pattern": "^(x+x+)+y$"}}}),
    ("a long text", {"a": "x" * 900_000}, {"properties": {"a": {"pattern": "(a|x)*y"}}}),
    (
        "many elements without a schema of only a type",
        {"a": [[1]] * 150_000},
        {"properties": {"a": {"items": {"items": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}}}},
    ),
    ("many distinct elements", {"a": list(range(140_000))}, {"properties": {"a": {"uniqueItems": True}}}),
    ("a long enum", {"a": ["x"] * 200_000}, {"properties": {"a": {"items": {"enum": list(range(10_000))}}}}),
    ("many unknown fields", {str(n): 1 for n in range(80_000)}, {"additionalProperties": False}),
    ("many names", {str(n): 1 for n in range(80_000)}, {"patternProperties": {"^x{9}|y*$": {"type": "integer"}}}),
]


@pytest.mark.parametrize(("payload", "schema"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
async def test_the_work_has_a_bound(connection: Connection, payload: Any, schema: Any) -> None:
    """F1: a payload of up to 1 MB takes half a second, whatever it is; the limit is for a busy machine."""
    started = time.monotonic()
    await connection.fetchval("select reactor.payload_complaints($1, $2)", json.dumps(payload), json.dumps(schema))
    assert time.monotonic() - started < 10
