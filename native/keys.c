/* The key index: hashes of the keys of records, and the entries that chain them.
 *
 * Layout: `wire/records/index_file_layout.py`; which keys count: `store/index/key_hashes.py`.
 */
#include "native.h"

#define HEAD_BYTES 88
#define MAGIC_V1 0xDAA320A7u
#define UNUSUAL (0xCu | 0x10u | 0x20u) /* the end of a transaction, or long addresses */
#define TAIL_MAX 1024
#define ROOM_MAX 0x1000000
#define ENTRY_BYTES 20
#define SECONDS_MAX 0x7FFFFFFFu
#define AHEAD 16

/* The hashes found, in words of 4 bytes, with the place and the time of each record, in words of 8. */
typedef struct {
    uint32_t *hashes;
    int64_t *places, *times;
    size_t count, room;
} Entries;

static uint32_t stored_hash(uint32_t hash) { return hash < 0x80000000u ? hash : (0u - hash) & 0x7FFFFFFFu; }

static int add_entry(Entries *entries, uint32_t hash, int64_t place, int64_t time_ms)
{
    if (entries->count == entries->room)
        return 0;
    entries->hashes[entries->count] = stored_hash(hash);
    entries->places[entries->count] = place;
    entries->times[entries->count++] = time_ms;
    return 1;
}

static int add_words(Entries *entries, Text keys, uint32_t seed, int64_t place, int64_t time_ms)
{
    const uint8_t *at = keys.bytes, *end = keys.bytes + keys.count;
    while (at < end) {
        const uint8_t *blank = memchr(at, ' ', (size_t)(end - at));
        const uint8_t *word_end = blank ? blank : end;
        if (word_end > at && !add_entry(entries, java_hash_from(seed, at, (size_t)(word_end - at)), place, time_ms))
            return 0;
        at = word_end + 1;
    }
    return 1;
}

#define WANTED 3
#define WORD(text) {(const uint8_t *)(text), sizeof(text) - 1}
static const Text wanted[WANTED] = {WORD("UNIQ_KEY"), WORD("KEYS"), WORD("TAGS")};

/* Add the entries of a record by its topic and properties; 0: it is out of the ordinary, or there is no room. */
static int add_keys(Entries *entries, const uint8_t *tail, size_t tail_bytes, int64_t place, int64_t time_ms)
{
    size_t topic_bytes = tail[0], raw_at = topic_bytes + 3;
    size_t before = entries->count;
    if (raw_at > tail_bytes || !is_ascii(tail + 1, topic_bytes) || !is_ascii(tail + raw_at, tail_bytes - raw_at))
        return 0;
    uint32_t seed = java_hash_from(java_hash_from(0, tail + 1, topic_bytes), (const uint8_t *)"#", 1);
    const uint8_t *raw = tail + raw_at;
    size_t raw_bytes = tail_bytes - raw_at;
    Text found[WANTED];
    find_properties(raw, raw_bytes, wanted, found, WANTED);
    Text unique = found[0], keys = found[1], tag = found[2];
    int is_added = 1;
    if (unique.bytes)
        is_added = add_entry(entries, java_hash_from(seed, unique.bytes, unique.count), place, time_ms);
    if (keys.bytes)
        is_added = is_added && add_words(entries, keys, seed, place, time_ms);
    if (tag.bytes) {
        uint32_t marked = java_hash_from(seed, (const uint8_t *)"T#", 2);
        is_added = is_added && add_entry(entries, java_hash_from(marked, tag.bytes, tag.count), place, time_ms);
    }
    if (!is_added)
        entries->count = before;
    return is_added;
}

/* read_keys(chunk, at, index, limit, count, entries_max) -> (where it ended, records left of `count`, hashes, places,
 * times): the keys of usual records from `index` of a chunk of the log that begins at `at`, up to the first that is
 * cut off by `limit` or out of the ordinary. Words as the machine has them. */
PyObject *native_read_keys(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    size_t bytes;
    const uint8_t *chunk = given == 6 ? bytes_of(args[0], &bytes) : NULL;
    if (!chunk)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "read_keys takes six arguments");
    int64_t chunk_at = PyLong_AsLongLong(args[1]);
    size_t index = PyLong_AsSize_t(args[2]), room = PyLong_AsSize_t(args[5]);
    Py_ssize_t last = PyLong_AsSsize_t(args[3]), count = PyLong_AsSsize_t(args[4]);
    if (PyErr_Occurred())
        return NULL;
    if (room > ROOM_MAX)
        return PyErr_Format(PyExc_ValueError, "at most %d entries at once", ROOM_MAX);
    size_t limit = last < 0 ? 0 : (size_t)last < bytes ? (size_t)last : bytes;
    room += TAIL_MAX;
    Entries found = {PyMem_Malloc(4 * room), PyMem_Malloc(8 * room), PyMem_Malloc(8 * room), 0, room};
    PyObject *result = NULL;
    if (!found.hashes || !found.places || !found.times) {
        PyErr_NoMemory();
        goto done;
    }
    while (count > 0 && found.count + TAIL_MAX <= room && index <= limit && limit - index >= HEAD_BYTES) {
        const uint8_t *head = chunk + index;
        uint32_t size = read32(head), body_bytes = read32(head + 84);
        if (read32(head + 4) != MAGIC_V1 || read32(head + 36) & UNUSUAL)
            break;
        if (size > limit - index || size < HEAD_BYTES + 3 || body_bytes > size - HEAD_BYTES - 3)
            break;
        size_t tail_bytes = size - HEAD_BYTES - body_bytes;
        if (tail_bytes > TAIL_MAX)
            break;
        int64_t time_ms = (int64_t)read64(head + 56);
        if (!add_keys(&found, head + HEAD_BYTES + body_bytes, tail_bytes, (int64_t)((uint64_t)chunk_at + index), time_ms))
            break;
        index += size;
        count--;
    }
    result = Py_BuildValue("nny#y#y#", (Py_ssize_t)index, count, (char *)found.hashes, (Py_ssize_t)(4 * found.count),
                           (char *)found.places, (Py_ssize_t)(8 * found.count), (char *)found.times,
                           (Py_ssize_t)(8 * found.count));
done:
    PyMem_Free(found.hashes);
    PyMem_Free(found.places);
    PyMem_Free(found.times);
    return result;
}

/* Words as the machine has them; a buffer may begin anywhere. */
static uint32_t own32(const uint8_t *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static uint64_t own64(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* chain_keys(slots, hashes, places, times, begin_ms, first) -> (the entries as they lie in a file, how many slots were
 * empty): puts each hash into its slot under a number from `first` on. All but `begin_ms` and `first` are buffers;
 * that of the slots is changed. */
PyObject *native_chain_keys(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Py_buffer views[4];
    int held = 0;
    PyObject *rows = NULL, *result = NULL;
    if (given != 6)
        return PyErr_Format(PyExc_TypeError, "chain_keys takes six arguments");
    for (; held < 4; held++)
        if (PyObject_GetBuffer(args[held], &views[held], held ? PyBUF_SIMPLE : PyBUF_WRITABLE) < 0)
            goto done;
    int64_t begin_ms = PyLong_AsLongLong(args[4]);
    unsigned long long first = PyLong_AsUnsignedLongLong(args[5]);
    size_t count = (size_t)views[1].len / 4, slot_count = (size_t)views[0].len / 4;
    if (PyErr_Occurred())
        goto done;
    if (!slot_count || (size_t)views[2].len != 8 * count || (size_t)views[3].len != 8 * count ||
        first > 0xFFFFFFFFu - (uint64_t)count) {
        PyErr_SetString(PyExc_ValueError, "columns of unequal length, no slots, or numbers beyond 32 bits");
        goto done;
    }
    rows = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(ENTRY_BYTES * count));
    if (!rows)
        goto done;
    uint8_t *slots = views[0].buf, *out = (uint8_t *)PyBytes_AsString(rows);
    const uint8_t *hashes = views[1].buf, *places = views[2].buf, *times = views[3].buf;
    size_t empty = 0;
    uint32_t number = (uint32_t)first;
    for (size_t at = 0; at < count; at++, out += ENTRY_BYTES, number++) {
        if (at + AHEAD < count) /* slots lie anywhere in 20 MB */
            __builtin_prefetch(slots + 4 * (own32(hashes + 4 * (at + AHEAD)) % slot_count), 1);
        uint32_t hash = own32(hashes + 4 * at);
        uint8_t *slot = slots + 4 * (hash % slot_count);
        int64_t time_ms = (int64_t)own64(times + 8 * at);
        uint64_t seconds = time_ms > begin_ms ? ((uint64_t)time_ms - (uint64_t)begin_ms) / 1000 : 0;
        write32(out, hash);
        write64(out + 4, own64(places + 8 * at));
        write32(out + 12, (uint32_t)(seconds < SECONDS_MAX ? seconds : SECONDS_MAX));
        memcpy(out + 16, slot, 4);
        empty += !read32(slot);
        write32(slot, number);
    }
    result = Py_BuildValue("On", rows, (Py_ssize_t)empty);
done:
    Py_XDECREF(rows);
    while (held--)
        PyBuffer_Release(&views[held]);
    return result;
}
