/* What the files of the compiled module share: the Python API, big-endian fields, checksums, hashes.
 *
 * Each function of the module does what a function in Python does, with the same result; where its input is out of
 * the ordinary it does nothing and says so, and the Python form decides. Reads no byte that was not checked to exist.
 */
#ifndef COMETMQ_NATIVE_H
#define COMETMQ_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline uint16_t read16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static inline uint32_t read32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t read64(const uint8_t *at) { return (uint64_t)read32(at) << 32 | read32(at + 4); }

static inline void write16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void write32(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

static inline void write64(uint8_t *at, uint64_t value)
{
    write32(at, (uint32_t)(value >> 32));
    write32(at + 4, (uint32_t)value);
}

/* Write the last so many hex digits of a number. */
static inline void write_hex(uint8_t *at, uint64_t value, int digits)
{
    for (int digit = digits - 1; digit >= 0; digit--, value >>= 4)
        at[digit] = (uint8_t)"0123456789ABCDEF"[value & 0xF];
}

#define BATCH_MESSAGES_MAX 512 /* cut or packed at once; a test holds the limits in Python below it */
#define ITEM_HEAD_BYTES 20     /* of a message in a batch, ahead of its body */

/* checksum.c */
void prepare_checksums(void);
uint32_t checksum(const uint8_t *bytes, size_t count); /* zlib's crc32 */

/* text.c: Java's String.hashCode taken on from `value` over ASCII */
uint32_t java_hash_from(uint32_t value, const uint8_t *bytes, size_t count);
int is_ascii(const uint8_t *bytes, size_t count);

typedef struct {
    const uint8_t *bytes; /* NULL: there is none */
    size_t count;
} Text;

/* The value, for each key, of the last pair with this key that has a value; see `wire/records/properties.py`. */
void find_properties(const uint8_t *raw, size_t count, const Text *keys, Text *found, int wanted);
Text find_property(const uint8_t *raw, size_t count, const char *key, size_t key_count);

/* The bytes of an object of type bytes; NULL with TypeError set for another. */
const uint8_t *bytes_of(PyObject *object, size_t *count);

/* records.c, messages.c: what they keep for all calls; -1 with an error set */
int prepare_records(void);
int prepare_messages(void);

/* The methods, each described beside its definition. */
PyObject *native_append_entries(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_batch_results(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_batch_records(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_chain_keys(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_checksum_by_tables(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_cut_pulls(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_decode_batch(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_exchange(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_fill_keys(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_gather(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_measure_records(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_number_keys(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_one_record(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_pack_messages(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_plain_tag_codes(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_read_keys(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_read_records(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_put_batch(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_put_frames(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
