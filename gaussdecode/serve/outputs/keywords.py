"""Names as the server's quote_identifier prints them."""

import re
from typing import Final

from gaussdecode.model.sqlnames import quoted_name

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")

POSTGRESQL: Final = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization between bigint binary
    bit boolean both case cast char character check coalesce collate collation column
    concurrently constraint create cross current_catalog current_date current_role
    current_schema current_time current_timestamp current_user dec decimal default
    deferrable desc distinct do else end except exists extract false fetch float for foreign
    freeze from full grant greatest group grouping having ilike in initially inner inout int
    integer intersect interval into is isnull join json json_array json_arrayagg json_exists
    json_object json_objectagg json_query json_scalar json_serialize json_table json_value
    lateral leading least left like limit localtime localtimestamp merge_action national
    natural nchar none normalize not notnull null nullif numeric offset on only or order out
    outer overlaps overlay placing position precision primary real references returning
    right row select session_user setof similar smallint some substring symmetric
    system_user table tablesample then time timestamp to trailing treat trim true union
    unique user using values varchar variadic verbose when where window with xmlattributes
    xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot
    xmlserialize xmltable
    """.split()  # noqa: SIM905 - shorter lines
)
"""Keywords of PostgreSQL 17 and 18 that are not unreserved. Older versions lack some of JSON and
``merge_action`` and ``system_user``, and leave columns of these names unquoted."""

OPENGAUSS: Final = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authid authorization between bigint
    binary binary_double binary_integer bit boolean both bucketcnt buckets byteawithoutorder
    byteawithoutorderwithequal case cast char character check coalesce collate collation
    column compact concurrently constraint create cross csn current_catalog current_date
    current_role current_schema current_time current_timestamp current_user date dec decimal
    decode default deferrable deltamerge desc distinct do else end except excluded exists
    extract false fenced fetch float for foreign freeze from full grant greatest group
    grouping groupparent having hdfsdirectory ilike in initially inner inout int integer
    intersect interval into is join leading least left less like limit localtime
    localtimestamp maxvalue minus modify national natural nchar nocycle none not notnull
    null nullif number numeric nvarchar nvarchar2 nvl offset on only or order out outer
    overlaps overlay performance placing position precision primary priorer procedure real
    recyclebin references reject returning right row rownum select session_user setof
    similar smalldatetime smallint some substring symmetric sysdate table tablesample then
    time timecapsule timestamp timestampdiff tinyint to trailing treat trim true union
    unique user using values varchar varchar2 variadic verbose verify when where window with
    xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlparse xmlpi xmlroot
    xmlserialize
    """.split()  # noqa: SIM905 - shorter lines
)
"""The same of openGauss; other versions have a few more or less."""


def quote_identifier(name: str, keywords: frozenset[str] = POSTGRESQL) -> str:
    """Quote a name where the server would.

    Args:
        name: true name.
        keywords: of the server, that are not unreserved.
    """
    return name if _PLAIN.fullmatch(name) and name not in keywords else quoted_name(name)


def quote_qualified(schema: str, name: str, keywords: frozenset[str] = POSTGRESQL) -> str:
    """Quote both parts of a table's name where the server would."""
    return f"{quote_identifier(schema, keywords)}.{quote_identifier(name, keywords)}"
