"""Arrays of built-in types, as asyncpg would read them from each server that it connects to."""

from typing import Any, NamedTuple


class _Type(NamedTuple):
    name: str
    oid: int
    array_oid: int


_BUILT_IN = (
    _Type("bool", 16, 1000),
    _Type("bytea", 17, 1001),
    _Type("int2", 21, 1005),
    _Type("int4", 23, 1007),
    _Type("int8", 20, 1016),
    _Type("float4", 700, 1021),
    _Type("float8", 701, 1022),
    _Type("numeric", 1700, 1231),
    _Type("varchar", 1043, 1015),
    _Type("uuid", 2950, 2951),
    _Type("json", 114, 199),
    _Type("jsonb", 3802, 3807),
    _Type("date", 1082, 1182),
    _Type("timestamp", 1114, 1115),
    _Type("timestamptz", 1184, 1185),
    _Type("interval", 1186, 1187),
)
"""Their oids are the same on every server."""

_NOT_OF_ARRAYS = dict.fromkeys(
    ("basetype", "basetype_name", "range_subtype", "range_subtype_name", "attrtypoids", "attrnames")
)

ARRAY_TYPES: list[dict[str, Any]] = [
    _NOT_OF_ARRAYS
    | {
        "oid": element.array_oid,
        "ns": "pg_catalog",
        "name": f"_{element.name}",
        "kind": "b",
        "elemtype": element.oid,
        "elemtype_name": element.name,
        "elemdelim": ",",
        "depth": 0,
    }
    for element in _BUILT_IN
]
