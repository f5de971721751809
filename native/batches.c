/* Batches that are stored as they came: their messages checked, their records, entries and ids made.
 *
 * See `broker/sends/plain_batches.py`; layout: `wire/records/message_batch.py`.
 */
#include "records.h"

#define HOST_MAX 64
#define MARKS_MAX 32

/* Texts to look for, and the bytes that they end with. */
typedef struct {
    Text marks[MARKS_MAX];
    Py_ssize_t count;
    uint8_t lasts[MARKS_MAX], is_before[256];
    int last_count;
} Marks;

static int marks_of(PyObject *given, Marks *marks)
{
    memset(marks, 0, sizeof *marks);
    marks->count = PyTuple_Check(given) ? PyTuple_Size(given) : MARKS_MAX + 1;
    if (marks->count > MARKS_MAX) {
        PyErr_Format(PyExc_ValueError, "marks are a tuple of at most %d", MARKS_MAX);
        return -1;
    }
    for (Py_ssize_t number = 0; number < marks->count; number++) {
        Text *mark = &marks->marks[number];
        mark->bytes = bytes_of(PyTuple_GetItem(given, number), &mark->count);
        if (!mark->bytes || mark->count < 2) {
            if (mark->bytes)
                PyErr_SetString(PyExc_ValueError, "a mark has two bytes at least");
            return -1;
        }
        if (!memchr(marks->lasts, mark->bytes[mark->count - 1], (size_t)marks->last_count))
            marks->lasts[marks->last_count++] = mark->bytes[mark->count - 1];
        marks->is_before[mark->bytes[mark->count - 2]] = 1;
    }
    return 0;
}

static int ends_with(const uint8_t *raw, size_t count, const Text *mark)
{
    return count >= mark->count && raw[count - 1] == mark->bytes[mark->count - 1] &&
           raw[count - 2] == mark->bytes[mark->count - 2] && !memcmp(raw + count - mark->count, mark->bytes, mark->count);
}

static int holds_a_mark(const uint8_t *raw, size_t count, const Marks *marks)
{
    for (int last = 0; last < marks->last_count; last++) {
        const uint8_t *at = raw, *end = raw + count;
        while (at < end && (at = memchr(at, marks->lasts[last], (size_t)(end - at)))) {
            at++;
            if (at - raw < 2 || !marks->is_before[at[-2]])
                continue;
            for (Py_ssize_t number = 0; number < marks->count; number++)
                if (ends_with(raw, (size_t)(at - raw), &marks->marks[number]))
                    return 1;
        }
    }
    return 0;
}

/* plain_tag_codes(raws, marks) -> the tags code of each properties; None where any holds one of the marks, or a tag
 * beyond ASCII. */
PyObject *native_plain_tag_codes(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Marks marks;
    if (given != 2 || !PyList_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "plain_tag_codes takes a list and a tuple");
    if (marks_of(args[1], &marks) < 0)
        return NULL;
    Py_ssize_t count = PyList_Size(args[0]);
    PyObject *codes = PyList_New(count);
    Text last = {NULL, 0}; /* messages in a row mostly have one tag */
    PyObject *last_code = NULL;
    for (Py_ssize_t at = 0; codes && at < count; at++) {
        size_t size;
        const uint8_t *raw = bytes_of(PyList_GetItem(args[0], at), &size);
        if (!raw)
            goto failed;
        Text tag = find_property(raw, size, "TAGS", 4);
        if (holds_a_mark(raw, size, &marks) || !is_ascii(tag.bytes, tag.count)) {
            Py_DECREF(codes);
            Py_XDECREF(last_code);
            return Py_NewRef(Py_None);
        }
        if (!last_code || tag.count != last.count || (tag.count && memcmp(tag.bytes, last.bytes, tag.count))) {
            Py_XDECREF(last_code);
            last_code = PyLong_FromLong((long)(int32_t)java_hash_from(0, tag.bytes, tag.count));
            if (!last_code)
                goto failed;
            last = tag;
        }
        PyList_SetItem(codes, at, Py_NewRef(last_code));
    }
    Py_XDECREF(last_code);
    return codes;
failed:
    Py_XDECREF(codes);
    Py_XDECREF(last_code);
    return NULL;
}

/* A message of a batch, as it lies in the request, and its tag. */
typedef struct {
    Parts parts;
    Text tag;
    size_t size; /* of its record */
} Item;

/* What one call works with and makes. */
typedef struct {
    Shape shape;
    Marks marks;
    Item items[BATCH_MESSAGES_MAX];
    Py_ssize_t count, count_max;
    size_t total, properties_max, size_max, room;
    PyObject *records, *entries, *ids;
} Batch;

/* Cut the message at the head of so many bytes; how many it takes, 0 where it needs more than to be stored. */
static size_t cut_item(const uint8_t *at, size_t room, const Batch *batch, Item *item)
{
    if (room < ITEM_HEAD_BYTES + 2)
        return 0;
    uint32_t size = read32(at), flag = read32(at + 12), body_bytes = read32(at + 16);
    if (flag || !body_bytes || size > room || size < ITEM_HEAD_BYTES + 2 || body_bytes > size - ITEM_HEAD_BYTES - 2)
        return 0;
    const uint8_t *body = at + ITEM_HEAD_BYTES, *raw = body + body_bytes + 2;
    uint32_t raw_bytes = read16(raw - 2);
    if (raw_bytes != size - ITEM_HEAD_BYTES - 2 - body_bytes)
        return 0;
    int separator = batch->shape.with_sum && raw_bytes && raw[raw_bytes - 1] != 2;
    item->parts = (Parts){body, raw, body_bytes, raw_bytes, separator};
    item->tag = find_property(raw, raw_bytes, "TAGS", 4);
    item->size = record_bytes(&batch->shape, &item->parts);
    if (raw_bytes + (size_t)separator > batch->properties_max || item->size > batch->size_max)
        return 0;
    return holds_a_mark(raw, raw_bytes, &batch->marks) || !is_ascii(item->tag.bytes, item->tag.count) ? 0 : size;
}

/* Cut all messages of a request's body; 0: they take another way. */
static int cut_items(const uint8_t *body, size_t bytes, Batch *batch)
{
    batch->count = 0;
    batch->total = 0;
    for (size_t at = 0, size; at < bytes; at += size) {
        if (batch->count == batch->count_max)
            return 0;
        Item *item = &batch->items[batch->count++];
        if (!(size = cut_item(body + at, bytes - at, batch, item)))
            return 0;
        batch->total += item->size;
    }
    return batch->count && batch->total + 8 <= batch->room;
}

static uint8_t *write_id(uint8_t *at, Text host, uint64_t phy_offset)
{
    memcpy(at, host.bytes, host.count);
    at += host.count;
    write_hex(at, phy_offset, PLACE_DIGITS);
    return at + PLACE_DIGITS;
}

/* The entry of a message in its queue; `code` and `size` are those of the one before where they stay the same. */
static PyObject *entry_of(PyObject *queue, uint64_t phy_offset, PyObject *size, PyObject *code)
{
    PyObject *place = PyLong_FromUnsignedLongLong(phy_offset);
    PyObject *entry = place && size && code ? PyTuple_Pack(4, queue, place, size, code) : NULL;
    Py_XDECREF(place);
    return entry;
}

static int is_same(Text one, Text other)
{
    return one.count == other.count && (!one.count || !memcmp(one.bytes, other.bytes, one.count));
}

/* Make records, entries and ids of the messages that were cut; -1 with an error set. */
static int make_all(Batch *batch, PyObject *queue, uint32_t queue_id, uint64_t queue_offset, uint64_t phy_offset,
                    uint64_t born_ms, Text host)
{
    PyObject *size = NULL, *code = NULL;
    batch->records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)batch->total);
    batch->entries = PyList_New(batch->count);
    batch->ids = PyBytes_FromStringAndSize(NULL, batch->count * (Py_ssize_t)(host.count + PLACE_DIGITS + 1) - 1);
    if (!batch->records || !batch->entries || !batch->ids)
        return -1;
    uint8_t *out = (uint8_t *)PyBytes_AsString(batch->records), *id = (uint8_t *)PyBytes_AsString(batch->ids);
    Py_ssize_t at = 0;
    for (; at < batch->count; at++) {
        const Item *item = &batch->items[at], *before = at ? item - 1 : NULL;
        write_record(out, item->size, &batch->shape, &item->parts, queue_id, queue_offset++, phy_offset, born_ms);
        if (!before || before->size != item->size) {
            Py_XDECREF(size);
            size = PyLong_FromSize_t(item->size);
        }
        if (!before || !is_same(before->tag, item->tag)) {
            Py_XDECREF(code);
            code = PyLong_FromLong((long)(int32_t)java_hash_from(0, item->tag.bytes, item->tag.count));
        }
        PyObject *entry = entry_of(queue, phy_offset, size, code);
        if (!entry)
            break;
        PyList_SetItem(batch->entries, at, entry);
        if (at)
            *id++ = ',';
        id = write_id(id, host, phy_offset);
        out += item->size;
        phy_offset += item->size;
    }
    Py_XDECREF(size);
    Py_XDECREF(code);
    return at < batch->count ? -1 : 0;
}

/* put_batch(body, count_max, marks, shape, behind, queues, open, queue_id, phy_offset, room, born_ms, properties_max,
 * size_max, host) -> (records side by side, entries, their offset ids, the first queue offset): the messages of a
 * request's body. None where any of them has a flag, no body, one of the marks or a tag beyond ASCII, where lengths are
 * inconsistent, or where a limit or `room` is exceeded. A queue that is None is opened by `open(queue_id)`; `host` is
 * what ids begin with. */
PyObject *native_put_batch(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    size_t bytes;
    Text host;
    const uint8_t *body = given == 14 ? bytes_of(args[0], &bytes) : NULL;
    if (!body || !PyList_Check(args[5]))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "put_batch takes fourteen arguments");
    Batch *batch = PyMem_Malloc(sizeof(Batch));
    if (!batch)
        return PyErr_NoMemory();
    batch->records = batch->entries = batch->ids = NULL;
    batch->count_max = PyLong_AsSsize_t(args[1]);
    size_t queue_id = PyLong_AsSize_t(args[7]);
    uint64_t phy_offset = PyLong_AsUnsignedLongLong(args[8]);
    batch->room = PyLong_AsSize_t(args[9]);
    uint64_t born_ms = PyLong_AsUnsignedLongLongMask(args[10]);
    batch->properties_max = PyLong_AsSize_t(args[11]);
    batch->size_max = PyLong_AsSize_t(args[12]);
    host.bytes = bytes_of(args[13], &host.count);
    PyObject *result = NULL, *queue = NULL, *number = NULL;
    if (PyErr_Occurred() || marks_of(args[2], &batch->marks) < 0 || shape_of(args[3], args[4], &batch->shape) < 0)
        goto done;
    size_t properties_most = 0x7FFF - (batch->shape.with_sum ? SUM_BYTES : 0);
    if (batch->count_max < 0 || batch->count_max > BATCH_MESSAGES_MAX || host.count > HOST_MAX ||
        batch->properties_max > properties_most || batch->size_max > 0x7FFFFFFF ||
        queue_id >= (size_t)PyList_Size(args[5])) {
        PyErr_SetString(PyExc_ValueError, "more messages, or longer ones, than there can be, or no such queue");
        goto done;
    }
    if (!cut_items(body, bytes, batch)) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    queue = open_queue(args[5], args[6], (uint32_t)queue_id);
    number = queue ? next_offset_of(queue) : NULL;
    uint64_t queue_offset = number ? PyLong_AsUnsignedLongLongMask(number) : 0;
    if (number && !PyErr_Occurred() &&
        make_all(batch, queue, (uint32_t)queue_id, queue_offset, phy_offset, born_ms, host) == 0)
        result = PyTuple_Pack(4, batch->records, batch->entries, batch->ids, number);
done:
    Py_XDECREF(queue);
    Py_XDECREF(number);
    Py_XDECREF(batch->records);
    Py_XDECREF(batch->entries);
    Py_XDECREF(batch->ids);
    PyMem_Free(batch);
    return result;
}
