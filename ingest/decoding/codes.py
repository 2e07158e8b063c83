"""The numbers by which databases name their own types, as logical types.

MySQL's protocol types, PostgreSQL's type OIDs, Oracle's codes. MySQL's do not tell an unsigned integer,
and 15, 253 and 254, 249 to 252 stand for texts and bytes alike.
"""

from __future__ import annotations

MYSQL_TYPES = {
    **dict.fromkeys([0, 246], "decimal"),
    1: "int8",
    2: "int16",
    3: "int32",
    4: "float32",
    5: "float64",
    **dict.fromkeys([7, 17], "timestamp"),
    8: "int64",
    9: "int32",
    **dict.fromkeys([10, 14], "date"),
    **dict.fromkeys([11, 19], "time"),
    **dict.fromkeys([12, 18], "datetime"),
    13: "year",
    **dict.fromkeys([15, 253, 254], "string"),
    16: "bit",
    245: "json",
    247: "enum",
    248: "set",
    255: "geometry",
}
POSTGRES_TYPES = {
    16: "boolean",
    17: "binary",
    20: "int64",
    21: "int16",
    23: "int32",
    25: "string",
    **dict.fromkeys([114, 3802], "json"),
    700: "float32",
    701: "float64",
    **dict.fromkeys([1042, 1043, 2950], "string"),
    1082: "date",
    1083: "time",
    1114: "datetime",
    1184: "timestamp",
    1186: "interval",
    1700: "decimal",
}
ORACLE_TYPES = {
    **dict.fromkeys([1, 8, 58, 69, 96, 112, 208], "string"),
    2: "decimal",
    **dict.fromkeys([12, 180], "datetime"),
    **dict.fromkeys([23, 24, 113, 114], "binary"),
    100: "float32",
    101: "float64",
    **dict.fromkeys([181, 231], "timestamp"),
    **dict.fromkeys([182, 183], "interval"),
}
BY_SOURCE = {
    "MySQL": MYSQL_TYPES,
    "DRDS": MYSQL_TYPES,
    "PostgreSQL": POSTGRES_TYPES,
    "PPAS": POSTGRES_TYPES,
    "Oracle": ORACLE_TYPES,
}
"""The codes of a source by its kind as captures name it."""
