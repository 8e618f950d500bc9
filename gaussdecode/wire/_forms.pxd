"""The words, letters and limits of GaussDB's styles: the one table for readers and the writer.

The readers are in ``source/gaussdb/translate``, and say how a message is made of these; the writer
is ``serve/outputs/_gauss.pyx``.
"""


cdef extern from *:
    """
    typedef struct { const char *text; size_t size; } gd_word;
    #define GD_WORD(name, letters) \\
        static const gd_word name __attribute__((unused)) = { letters, sizeof(letters) - 1 };
    /* boundaries */
    GD_WORD(WORD_BEGIN, "BEGIN")
    GD_WORD(WORD_COMMIT, "COMMIT")
    GD_WORD(WORD_PARALLEL_COMMIT, "commit")
    GD_WORD(WORD_XID, " xid: ")
    GD_WORD(WORD_AT, " (at ")
    GD_WORD(WORD_CSN, " CSN ")
    GD_WORD(WORD_ORIGIN, " ORIGIN_ID ")
    GD_WORD(WORD_HEARTBEAT, "HeartBeat:")
    GD_WORD(KEY_CSN, "CSN")
    GD_WORD(KEY_FIRST_LSN, "first_lsn")
    GD_WORD(KEY_XID, "xid")
    GD_WORD(KEY_TIME, "commit_time")
    GD_WORD(KEY_USER, "user_name")
    GD_WORD(KEY_USERNAME, "username")   /* as a manual spells it */
    GD_WORD(KEY_ORIGIN, "origin_id")
    /* rows as text */
    GD_WORD(WORD_TABLE, "table ")
    GD_WORD(WORD_INSERT, " INSERT:")
    GD_WORD(WORD_UPDATE, " UPDATE:")
    GD_WORD(WORD_DELETE, " DELETE:")
    GD_WORD(WORD_TRUNCATE, " TRUNCATE:")
    GD_WORD(WORD_OLD_KEY, " old-key:")
    GD_WORD(WORD_NEW_TUPLE, " new-tuple:")
    GD_WORD(WORD_NO_TUPLE, " (no-tuple-data)")
    GD_WORD(WORD_NO_FLAGS, " (no-flags)")
    GD_WORD(WORD_RESTART, " restart_seqs")
    GD_WORD(WORD_CASCADE, " cascade")
    /* rows as JSON: each array ends in ] */
    GD_WORD(JSON_TABLE, "{\\"table_name\\":")
    GD_WORD(JSON_OPERATION, ",\\"op_type\\":\\"")
    GD_WORD(JSON_INSERT, "INSERT")
    GD_WORD(JSON_UPDATE, "UPDATE")
    GD_WORD(JSON_DELETE, "DELETE")
    GD_WORD(JSON_NAMES, "\\",\\"columns_name\\":[")
    GD_WORD(JSON_TYPES, ",\\"columns_type\\":[")
    GD_WORD(JSON_VALUES, ",\\"columns_val\\":[")
    GD_WORD(JSON_OLD_NAMES, ",\\"old_keys_name\\":[")
    GD_WORD(JSON_OLD_TYPES, ",\\"old_keys_type\\":[")
    GD_WORD(JSON_OLD_VALUES, ",\\"old_keys_val\\":[")
    /* rows as SQL */
    GD_WORD(SQL_INSERT, "insert into ")
    GD_WORD(SQL_VALUES, " values ")
    GD_WORD(SQL_DELETE, "delete from ")
    GD_WORD(SQL_WHERE, " where ")
    GD_WORD(SQL_IS, " = ")
    GD_WORD(SQL_AND, " and ")
    GD_WORD(SQL_COMMA, ", ")
    /* values of all that is text */
    GD_WORD(VALUE_NULL, "null")
    GD_WORD(VALUE_TRUE, "true")
    GD_WORD(VALUE_FALSE, "false")
    GD_WORD(VALUE_UNCHANGED, "unchanged-toast-datum")
    """
    ctypedef struct Word "gd_word":
        const char *text
        size_t size

    const Word WORD_BEGIN, WORD_COMMIT, WORD_PARALLEL_COMMIT, WORD_XID, WORD_AT, WORD_CSN
    const Word WORD_ORIGIN, WORD_HEARTBEAT
    const Word KEY_CSN, KEY_FIRST_LSN, KEY_XID, KEY_TIME, KEY_USER, KEY_USERNAME, KEY_ORIGIN
    const Word WORD_TABLE, WORD_INSERT, WORD_UPDATE, WORD_DELETE, WORD_TRUNCATE
    const Word WORD_OLD_KEY, WORD_NEW_TUPLE, WORD_NO_TUPLE
    const Word WORD_NO_FLAGS, WORD_RESTART, WORD_CASCADE
    const Word JSON_TABLE, JSON_OPERATION, JSON_INSERT, JSON_UPDATE, JSON_DELETE
    const Word JSON_NAMES, JSON_TYPES, JSON_VALUES
    const Word JSON_OLD_NAMES, JSON_OLD_TYPES, JSON_OLD_VALUES
    const Word SQL_INSERT, SQL_VALUES, SQL_DELETE, SQL_WHERE, SQL_IS, SQL_AND, SQL_COMMA
    const Word VALUE_NULL, VALUE_TRUE, VALUE_FALSE, VALUE_UNCHANGED

# Of the binary style: records, parts of rows, parts of boundaries, what stands after a record.
cdef enum Form:
    RECORD_BEGIN = 0x42         # B
    RECORD_COMMIT = 0x43        # C
    RECORD_INSERT = 0x49        # I
    RECORD_UPDATE = 0x55        # U
    RECORD_DELETE = 0x44        # D
    RECORD_HEARTBEAT = 0x68     # h
    PART_NEW = 0x4E             # N
    PART_OLD = 0x4F             # O
    PART_XID = 0x58             # X
    PART_ORIGIN = 0x4F          # O
    PART_TIME = 0x54            # T
    PART_USER = 0x4E            # N
    SEPARATOR_NEXT = 0x50       # P: another record follows
    SEPARATOR_LAST = 0x46       # F

cdef enum:
    NULL_SIZE = 0xFFFFFFFF      # in place of a value's size
    RESERVED_SIZE = 0xFFFFFFFE
