"""The letters of canonical messages, of their tuples and of GaussDB's styles; see `letters.py`."""

cdef enum Letter:
    LETTER_BEGIN = 0x42         # B
    LETTER_COMMIT = 0x43        # C
    LETTER_ORIGIN = 0x4F        # O
    LETTER_RELATION = 0x52      # R
    LETTER_TYPE = 0x59          # Y
    LETTER_INSERT = 0x49        # I
    LETTER_UPDATE = 0x55        # U
    LETTER_DELETE = 0x44        # D
    LETTER_TRUNCATE = 0x54      # T
    LETTER_MESSAGE = 0x4D       # M
    LETTER_STREAM_START = 0x53  # S
    LETTER_STREAM_STOP = 0x45   # E
    LETTER_STREAM_COMMIT = 0x63  # c
    LETTER_STREAM_ABORT = 0x41  # A
    LETTER_PREPARE_BEGIN = 0x62  # b
    LETTER_PREPARE = 0x50       # P
    LETTER_STREAM_PREPARE = 0x70  # p
    LETTER_COMMIT_PREPARED = 0x4B  # K
    LETTER_ROLLBACK_PREPARED = 0x72  # r
    LETTER_GAUSS_BEGIN = 0x67   # g
    LETTER_GAUSS_COMMIT = 0x66  # f
    LETTER_NOTICE = 0x6E        # n
    LETTER_HEARTBEAT = 0x68     # h

cdef enum Image:
    IMAGE_NEW = 0x4E            # N
    IMAGE_KEY = 0x4B            # K
    IMAGE_OLD = 0x4F            # O
    IMAGE_NONE = 0x58           # X

cdef enum Cell:
    CELL_NULL = 0x6E            # n
    CELL_UNCHANGED = 0x75       # u
    CELL_TEXT = 0x74            # t
    CELL_BINARY = 0x62          # b

cdef enum StreamStyle:
    STYLE_BINARY = 0x62         # b
    STYLE_TEXT = 0x74           # t
    STYLE_JSON = 0x6A           # j
    STYLE_SERIAL = 0x73         # s
    STYLE_SQL = 0x71            # q
