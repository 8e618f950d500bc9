"""The functions of libpq that the receive loop calls, by pointer.

Never linked: `source.postgresql.connection` takes their addresses from the libpq that psycopg
loaded. All run without the GIL, on a connection that only the calling thread touches.
"""

ctypedef int (*get_copy_data_t)(void *connection, char **buffer, int is_async) noexcept nogil
ctypedef int (*consume_input_t)(void *connection) noexcept nogil
ctypedef int (*put_copy_data_t)(void *connection, const char *buffer, int size) noexcept nogil
ctypedef int (*flush_t)(void *connection) noexcept nogil
ctypedef void (*freemem_t)(void *memory) noexcept nogil


cdef struct Libpq:
    void *connection
    get_copy_data_t get_copy_data
    consume_input_t consume_input
    put_copy_data_t put_copy_data
    flush_t flush
    freemem_t freemem
