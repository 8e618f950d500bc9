"""The letters of canonical messages: the one table of them and of their layouts.

Messages of pgoutput, protocols 1 to 4, and of our own (`GAUSS_BEGIN` and after it), in letters that no
pgoutput uses: a GaussDB stream is translated to them before anything else reads it. Cython has
the same numbers in `_letters.pxd`; a test holds the two equal.

Between `PREPARE_BEGIN` and `PREPARE` stands a whole transaction, as between `BEGIN` and `COMMIT`.
Between `STREAM_START` and `STREAM_STOP`, relations, types, rows, truncates and messages have the
id of their (sub)transaction, a u32, after the letter.

Integers are big-endian; a str ends with a zero byte. Times are microseconds since 2000.
A tuple is a letter of `Image`, a u16 column count, and a letter of `Cell` per column; `TEXT` is
followed by a u32 size and the text. What was not sent of a GaussDB message is 0, the smallest
number as a time, an empty name.
"""

import enum


class Letter(bytes, enum.Enum):
    """First byte of a message; its comment tells what follows."""

    BEGIN = b"B"  # u64 commit_lsn, i64 commit time, u32 xid
    COMMIT = b"C"  # u8 flags = 0, u64 commit_lsn, u64 end_lsn, i64 commit time
    ORIGIN = b"O"  # u64 lsn, str name
    RELATION = b"R"  # u32 oid, str schema, str name, u8 identity, u16 count, columns:
    #                  u8 flags (1 key), str name, u32 type oid, i32 type modifier
    TYPE = b"Y"  # u32 oid, str schema, str name
    INSERT = b"I"  # u32 oid, N tuple
    UPDATE = b"U"  # u32 oid, optional (K or O tuple), N tuple
    DELETE = b"D"  # u32 oid, K or O tuple, or the letter of no tuple alone
    TRUNCATE = b"T"  # u32 count, u8 bits (1 cascade, 2 restart identity), count x u32 oid
    MESSAGE = b"M"  # u8 flags (1 transactional), u64 lsn, str prefix, u32 size, bytes
    STREAM_START = b"S"  # u32 xid, u8 flags (1 first block of the transaction)
    STREAM_STOP = b"E"  # nothing
    STREAM_COMMIT = b"c"  # u32 xid, u8 flags = 0, u64 commit_lsn, u64 end_lsn, i64 commit time
    STREAM_ABORT = b"A"  # u32 xid, u32 xid of what was rolled back, all if equal; with
    #                      streaming=parallel also u64 lsn, i64 time
    PREPARE_BEGIN = b"b"  # u64 prepare_lsn, u64 end_lsn, i64 prepare time, u32 xid, str gid
    PREPARE = b"P"  # u8 flags = 0, u64 prepare_lsn, u64 end_lsn, i64 prepare time, u32 xid, str gid
    STREAM_PREPARE = b"p"  # the same
    COMMIT_PREPARED = b"K"  # u8 flags = 0, u64 commit_lsn, u64 end_lsn, i64 commit time, u32 xid,
    #                         str gid
    ROLLBACK_PREPARED = b"r"  # u8 flags = 0, u64 end_lsn of the prepare, u64 end_lsn, i64 prepare
    #                           time, i64 rollback time, u32 xid, str gid
    GAUSS_BEGIN = b"g"  # u64 first_lsn, u64 csn, u64 xid, i64 time, u32 origin id, str user name
    GAUSS_COMMIT = b"f"  # u64 end_lsn, u64 xid, i64 commit time, u64 csn
    NOTICE = b"n"  # u8 code, u32 size, text
    HEARTBEAT = b"h"  # u64 lsn, u64 flushed lsn, i64 timestamp (since 1970)


class Image(bytes, enum.Enum):
    """Which tuple of a row it is."""

    NEW = b"N"
    KEY = b"K"  # of the old row, its key
    OLD = b"O"  # the whole old row
    NONE = b"X"  # a GaussDB table has a key, and the server sent none of the row


class Cell(bytes, enum.Enum):
    """What stands for a column."""

    NULL = b"n"
    UNCHANGED = b"u"  # stored out of line, and not sent
    TEXT = b"t"
    BINARY = b"b"  # never asked for


class StreamStyle(enum.StrEnum):
    """The form of a GaussDB stream before it is translated."""

    BINARY = "b"  # framed in binary, with values as text
    TEXT = "t"
    JSON = "j"
    SERIAL = "s"  # mppdb_decoding without parallel decoding
    SQL = "q"  # sql_decoding
