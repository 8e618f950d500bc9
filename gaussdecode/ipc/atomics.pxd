"""Atomic operations on uint64 words in memory that processes share.

GCC's and Clang's builtins, which work on plain words at any address; C11's _Atomic would
need the type in every declaration. `acquire` and `release` order what is around them,
`fence` is what a store followed by a load of another word needs (see `ipc.ring`).
"""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    static inline uint64_t gd_load_acquire(const uint64_t *word) {
        return __atomic_load_n(word, __ATOMIC_ACQUIRE);
    }
    static inline void gd_store_release(uint64_t *word, uint64_t value) {
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
    }
    static inline uint64_t gd_add(uint64_t *word, uint64_t value) {
        return __atomic_add_fetch(word, value, __ATOMIC_ACQ_REL);
    }
    static inline uint64_t gd_exchange(uint64_t *word, uint64_t value) {
        return __atomic_exchange_n(word, value, __ATOMIC_ACQ_REL);
    }
    static inline void gd_fence(void) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    static inline uint64_t gd_raise_word(uint64_t *word, uint64_t value) {
        uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        while (seen < value && !__atomic_compare_exchange_n(
                word, &seen, value, 1, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        }
        return seen < value ? value : seen;
    }
    """
    uint64_t load_acquire "gd_load_acquire"(const uint64_t *word) noexcept nogil
    void store_release "gd_store_release"(uint64_t *word, uint64_t value) noexcept nogil
    uint64_t add_fetch "gd_add"(uint64_t *word, uint64_t value) noexcept nogil
    uint64_t exchange "gd_exchange"(uint64_t *word, uint64_t value) noexcept nogil
    void fence "gd_fence"() noexcept nogil
    uint64_t raise_word "gd_raise_word"(uint64_t *word, uint64_t value) noexcept nogil
