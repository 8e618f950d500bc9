"""What differs between the versions of openGauss and GaussDB, as their source says it."""

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """One version of the server.

    Attributes:
        name: how tests call it.
        version: answer of ``version()``.
        begin_has_xid: BEGIN carries the xid when include-xids is on.
        has_originid: the option include-originid is known.
        has_memory_options: max-txn-in-memory and its like are known in parallel mode.
        sends_null_old: NULL columns of an old tuple are sent.
        raises_header: the header LSN is overwritten by the highest LSN of the buffer.
        status_columns: columns of ``gs_get_parallel_decode_status()``.
        has_confirmed_flush: pg_replication_slots shows it.
        warns_of_ddl: rows lost to DDL are announced by a notice.
        serial_drops: serial decoding, too, drops the rows that follow DDL.
        sends_truncate: TRUNCATE is printed in serial mode.
        sends_ddl: DDL is printed in serial mode, where a publication has it.
        has_short_floats: floats print as the shortest text that reads back.
        leaves_out_speculative: serial decoding sends nothing of an upsert that was overtaken, on heap.
        is_commercial: options of the product document are known: users, heartbeats, CSN.
    """

    name: str
    version: str
    begin_has_xid: bool = True
    has_originid: bool = True
    has_memory_options: bool = True
    sends_null_old: bool = True
    raises_header: bool = True
    status_columns: int = 7
    has_confirmed_flush: bool = True
    warns_of_ddl: bool = True
    serial_drops: bool = False
    sends_truncate: bool = True
    sends_ddl: bool = True
    has_short_floats: bool = False
    leaves_out_speculative: bool = False
    is_commercial: bool = False


def _opengauss(release: str, build: str, compiled: str) -> str:
    return (
        f"(openGauss {release} build {build}) compiled at {compiled} commit 0 last mr   on "
        "x86_64-unknown-linux-gnu, compiled by g++ (GCC) 7.3.0, 64-bit"
    )


_OLD: Final = {
    "begin_has_xid": False, "has_originid": False, "sends_truncate": False, "sends_ddl": False,
    "serial_drops": True,
}  # fmt: skip
V3_0_0: Final = Profile(
    "3.0.0",
    _opengauss("3.0.0", "02c14696", "2022-04-01 18:12:34"),
    has_memory_options=False,
    sends_null_old=False,
    raises_header=False,
    status_columns=4,
    has_confirmed_flush=False,
    warns_of_ddl=False,
    **_OLD,
)
V3_0_3: Final = Profile("3.0.3", _opengauss("3.0.3", "46134f73", "2023-01-11 15:35:28"), **_OLD)
V3_1_0: Final = Profile(
    "3.1.0",
    _opengauss("3.1.0", "4e931f9a", "2022-09-29 14:19:24"),
    sends_null_old=False,
    **_OLD,
)
V5_0_1: Final = Profile(
    "5.0.1",
    _opengauss("5.0.1", "33b035fd", "2023-12-15 20:28:19"),
    begin_has_xid=False,
    serial_drops=True,
    sends_truncate=False,
    sends_ddl=False,
)
V6_0_0: Final = Profile("6.0.0", _opengauss("6.0.0", "aee4abd5", "2024-09-29 18:39:35"))
V6_0_2: Final = Profile(
    "6.0.2",
    _opengauss("6.0.2", "d2a4f4b3", "2025-06-30 18:11:02"),
    leaves_out_speculative=True,
)
V7_0_0: Final = Profile(
    "7.0.0-RC1",
    _opengauss("7.0.0-RC1", "10d38387", "2025-03-21 18:05:43"),
    has_short_floats=True,
)
COMMERCIAL: Final = Profile(
    "GaussDB",
    "gaussdb (GaussDB Kernel 505.1.0 build 44f4fa53) compiled at 2023-12-21 00:19:18 commit 6654 "
    "last mr 13766 release",
    begin_has_xid=False,
    has_originid=False,
    status_columns=8,
    sends_ddl=False,
    is_commercial=True,
)
PROFILES: Final = {
    profile.name: profile
    for profile in (V3_0_0, V3_0_3, V3_1_0, V5_0_1, V6_0_0, V7_0_0, COMMERCIAL)
}
