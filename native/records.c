/* Records of the commit log from the parts of messages, and the messages of a batch from its body.
 *
 * Layout: `wire/records/log_record.py`, `wire/records/message_batch.py`.
 */
#include "records.h"

#define BEHIND_MIN 52 /* what follows up to the body, between hosts of IPv4 */
#define SUM_MASK 0x7FFFFFFFu

int shape_of(PyObject *given, PyObject *behind, Shape *shape)
{
    if (!PyTuple_Check(given) || PyTuple_Size(given) != 4) {
        PyErr_SetString(PyExc_TypeError, "a shape has four parts");
        return -1;
    }
    shape->magic = (uint32_t)PyLong_AsUnsignedLongMask(PyTuple_GetItem(given, 0));
    shape->flag = (uint32_t)PyLong_AsUnsignedLongMask(PyTuple_GetItem(given, 1));
    shape->topic = bytes_of(PyTuple_GetItem(given, 2), &shape->topic_bytes);
    shape->with_sum = PyObject_IsTrue(PyTuple_GetItem(given, 3));
    shape->behind = bytes_of(behind, &shape->behind_bytes);
    if (!PyErr_Occurred() && shape->behind_bytes < BEHIND_MIN)
        PyErr_SetString(PyExc_ValueError, "the fields behind the front are cut short");
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *item_of(PyObject *items, Py_ssize_t at)
{
    return PyList_Check(items) ? PyList_GetItem(items, at) : PyTuple_GetItem(items, at);
}

static Py_ssize_t count_of(PyObject *items)
{
    if (PyList_Check(items))
        return PyList_Size(items);
    if (PyTuple_Check(items))
        return PyTuple_Size(items);
    PyErr_SetString(PyExc_TypeError, "columns are lists or tuples");
    return -1;
}

static int parts_of(PyObject *bodies, PyObject *raws, Py_ssize_t at, int with_sum, Parts *parts)
{
    PyObject *body = item_of(bodies, at), *raw = item_of(raws, at);
    if (!body || !raw)
        return -1;
    parts->body = bytes_of(body, &parts->body_bytes);
    parts->raw = bytes_of(raw, &parts->raw_bytes);
    if (!parts->body || !parts->raw)
        return -1;
    parts->separator = with_sum && parts->raw_bytes && parts->raw[parts->raw_bytes - 1] != 2;
    return 0;
}

static size_t properties_bytes(const Shape *shape, const Parts *parts)
{
    return parts->raw_bytes + (size_t)parts->separator + (shape->with_sum ? SUM_BYTES : 0);
}

size_t record_bytes(const Shape *shape, const Parts *parts)
{
    return FRONT_BYTES + shape->behind_bytes + parts->body_bytes + shape->topic_bytes + 2 +
           properties_bytes(shape, parts);
}

/* How many bytes the record takes; 0 with an error set: more than `room`, or than its fields can say. Columns are
 * measured, then written: what Python runs in between may have changed them. */
static size_t measured(const Shape *shape, const Parts *parts, size_t room)
{
    size_t size = record_bytes(shape, parts);
    if (properties_bytes(shape, parts) <= 0x7FFF && size <= 0x7FFFFFFF && size <= room)
        return size;
    PyErr_SetString(PyExc_ValueError, "a record that is longer than it may be");
    return 0;
}

static void write_sum(uint8_t *at, uint32_t sum)
{
    memcpy(at, "__CRC32#\1", 9);
    for (int digit = 0; digit < 10; digit++, sum /= 10) /* the lowest first */
        at[9 + digit] = (uint8_t)('0' + sum % 10);
    at[19] = 2;
}

void write_record(uint8_t *start, size_t size, const Shape *shape, const Parts *parts, uint32_t queue_id,
                  uint64_t queue_offset, uint64_t phy_offset, uint64_t born_ms)
{
    uint8_t *at = start + FRONT_BYTES;
    write32(start, (uint32_t)size);
    write32(start + 4, shape->magic);
    write32(start + 8, checksum(parts->body, parts->body_bytes) & SUM_MASK);
    write32(start + 12, queue_id);
    write32(start + 16, shape->flag);
    write64(start + 20, queue_offset);
    write64(start + 28, phy_offset);
    memcpy(at, shape->behind, shape->behind_bytes);
    write64(at + 4, born_ms);
    at += shape->behind_bytes;
    write32(at - 4, (uint32_t)parts->body_bytes);
    memcpy(at, parts->body, parts->body_bytes);
    at += parts->body_bytes;
    memcpy(at, shape->topic, shape->topic_bytes);
    at += shape->topic_bytes;
    write16(at, (uint16_t)properties_bytes(shape, parts));
    memcpy(at + 2, parts->raw, parts->raw_bytes);
    at += 2 + parts->raw_bytes;
    if (parts->separator)
        *at++ = 2;
    if (shape->with_sum)
        write_sum(at, checksum(start, (size_t)(at - start)) & SUM_MASK);
}

/* measure_records(bodies, raws, fixed_bytes, with_sum) -> (bytes of all records, of the longest properties with the
 * checksum, of the largest record); `fixed_bytes` is the size of a record without body and properties. */
PyObject *native_measure_records(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    if (given != 4 || count_of(args[0]) < 0 || count_of(args[1]) != count_of(args[0]))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "as many bodies as properties, and two more");
    size_t fixed = PyLong_AsSize_t(args[2]), total = 0, longest = 0, largest = 0;
    int with_sum = PyObject_IsTrue(args[3]);
    Py_ssize_t count = count_of(args[0]);
    if (PyErr_Occurred())
        return NULL;
    for (Py_ssize_t at = 0; at < count; at++) {
        Parts parts;
        if (parts_of(args[0], args[1], at, with_sum, &parts) < 0)
            return NULL;
        size_t raw = parts.raw_bytes + (size_t)parts.separator;
        size_t size = fixed + parts.body_bytes + raw;
        total += size;
        longest = raw > longest ? raw : longest;
        largest = size > largest ? size : largest;
    }
    return Py_BuildValue("nnn", (Py_ssize_t)total, (Py_ssize_t)longest, (Py_ssize_t)largest);
}

/* batch_records(shape, behind, queue, queue_id, queue_offset, phy_offset, born_ms, bodies, raws, codes)
 * -> (the records side by side, the entries of their queue, where each lies) */
PyObject *native_batch_records(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Shape shape;
    if (given != 10 || shape_of(args[0], args[1], &shape) < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "batch_records takes ten arguments");
    uint32_t queue_id = (uint32_t)PyLong_AsUnsignedLongMask(args[3]);
    uint64_t queue_offset = PyLong_AsUnsignedLongLongMask(args[4]);
    long long phy_offset = PyLong_AsLongLong(args[5]);
    uint64_t born_ms = PyLong_AsUnsignedLongLongMask(args[6]);
    PyObject *bodies = args[7], *raws = args[8], *codes = args[9];
    Py_ssize_t count = count_of(bodies);
    if (PyErr_Occurred() || count_of(raws) != count || count_of(codes) != count)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "bodies, properties and codes go in pairs");
    size_t total = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        Parts parts;
        size_t size = parts_of(bodies, raws, at, shape.with_sum, &parts) < 0 ? 0 : measured(&shape, &parts, SIZE_MAX);
        if (!size)
            return NULL;
        total += size;
    }
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    PyObject *entries = PyList_New(count), *places = PyList_New(count), *found = NULL;
    if (!records || !entries || !places)
        goto done;
    uint8_t *out = (uint8_t *)PyBytes_AsString(records);
    for (Py_ssize_t at = 0; at < count; at++) {
        Parts parts;
        size_t size = parts_of(bodies, raws, at, shape.with_sum, &parts) < 0 ? 0 : measured(&shape, &parts, total);
        if (!size)
            goto done;
        write_record(out, size, &shape, &parts, queue_id, queue_offset++, (uint64_t)phy_offset, born_ms);
        PyObject *place = PyLong_FromLongLong(phy_offset);
        PyObject *entry = place ? Py_BuildValue("OOnO", args[2], place, (Py_ssize_t)size, item_of(codes, at)) : NULL;
        if (!entry) {
            Py_XDECREF(place);
            goto done;
        }
        PyList_SetItem(places, at, place);
        PyList_SetItem(entries, at, entry);
        out += size;
        total -= size;
        phy_offset = (long long)((uint64_t)phy_offset + size);
    }
    found = PyTuple_Pack(3, records, entries, places);
done:
    Py_XDECREF(records);
    Py_XDECREF(entries);
    Py_XDECREF(places);
    return found;
}

/* one_record(shape, behind, queue_id, queue_offset, phy_offset, born_ms, body, raw) -> the record; `raw` ends with a
 * separator. */
PyObject *native_one_record(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Shape shape;
    Parts parts = {NULL, NULL, 0, 0, 0};
    if (given != 8 || shape_of(args[0], args[1], &shape) < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "one_record takes eight arguments");
    uint32_t queue_id = (uint32_t)PyLong_AsUnsignedLongMask(args[2]);
    uint64_t queue_offset = PyLong_AsUnsignedLongLongMask(args[3]);
    uint64_t phy_offset = PyLong_AsUnsignedLongLongMask(args[4]), born_ms = PyLong_AsUnsignedLongLongMask(args[5]);
    parts.body = bytes_of(args[6], &parts.body_bytes);
    parts.raw = bytes_of(args[7], &parts.raw_bytes);
    if (PyErr_Occurred())
        return NULL;
    size_t size = measured(&shape, &parts, SIZE_MAX);
    PyObject *record = size ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size) : NULL;
    if (record)
        write_record((uint8_t *)PyBytes_AsString(record), size, &shape, &parts, queue_id, queue_offset, phy_offset,
                     born_ms);
    return record;
}

/* decode_batch(body, at, count) -> (flags, bodies, properties, where it ended): the messages of a batch from a place
 * on, at most so many, up to one whose lengths are inconsistent. */
PyObject *native_decode_batch(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    size_t end;
    const uint8_t *raw = given == 3 ? bytes_of(args[0], &end) : NULL;
    if (!raw)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "decode_batch takes three arguments");
    size_t at = PyLong_AsSize_t(args[1]);
    Py_ssize_t most = PyLong_AsSsize_t(args[2]);
    PyObject *flags = PyList_New(0), *bodies = PyList_New(0), *properties = PyList_New(0), *found = NULL;
    if (PyErr_Occurred())
        goto done;
    for (; most > 0 && at <= end && end - at >= ITEM_HEAD_BYTES + 2; most--) {
        size_t room = end - at - ITEM_HEAD_BYTES - 2; /* for body and properties */
        uint32_t size = read32(raw + at), body_bytes = read32(raw + at + 16);
        if (body_bytes > room || (size | body_bytes) >> 31)
            break;
        const uint8_t *body = raw + at + ITEM_HEAD_BYTES;
        uint32_t raw_bytes = read16(body + body_bytes);
        if (raw_bytes > 0x7FFF || raw_bytes > room - body_bytes || size != ITEM_HEAD_BYTES + 2 + body_bytes + raw_bytes)
            break;
        PyObject *parts[] = {
            PyLong_FromLong((long)(int32_t)read32(raw + at + 12)),
            PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)body_bytes),
            PyBytes_FromStringAndSize((const char *)body + body_bytes + 2, (Py_ssize_t)raw_bytes),
        };
        PyObject *lists[] = {flags, bodies, properties};
        int failed = 0;
        for (int part = 0; part < 3; part++) {
            failed |= !parts[part] || PyList_Append(lists[part], parts[part]) < 0;
            Py_XDECREF(parts[part]);
        }
        if (failed)
            goto done;
        at += size;
    }
    found = Py_BuildValue("OOOn", flags, bodies, properties, (Py_ssize_t)at);
done:
    Py_XDECREF(flags);
    Py_XDECREF(bodies);
    Py_XDECREF(properties);
    return found;
}

static PyObject *next_offset_name, *tail_name;

PyObject *open_queue(PyObject *queues, PyObject *open, uint32_t queue_id)
{
    PyObject *queue = PyList_GetItem(queues, (Py_ssize_t)queue_id);
    if (queue != Py_None)
        return Py_XNewRef(queue);
    PyObject *number = PyLong_FromUnsignedLong(queue_id);
    PyObject *opened = number ? PyObject_CallFunctionObjArgs(open, number, NULL) : NULL;
    Py_XDECREF(number);
    if (opened && PyList_SetItem(queues, (Py_ssize_t)queue_id, Py_NewRef(opened)) < 0)
        Py_CLEAR(opened);
    return opened;
}

PyObject *next_offset_of(PyObject *queue) { return PyObject_GetAttr(queue, next_offset_name); }

int take_offset(QueueOffsets *offsets, PyObject *queues, PyObject *open, uint32_t queue_id, uint64_t *taken)
{
    if (!offsets->is_known[queue_id]) {
        PyObject *queue = open_queue(queues, open, queue_id);
        PyObject *number = queue ? next_offset_of(queue) : NULL;
        Py_XDECREF(queue);
        if (!number)
            return -1;
        offsets->next[queue_id] = PyLong_AsUnsignedLongLongMask(number);
        Py_DECREF(number);
        offsets->is_known[queue_id] = 1;
        offsets->known[offsets->count++] = (uint16_t)queue_id;
    }
    *taken = offsets->next[queue_id]++;
    return PyErr_Occurred() ? -1 : 0;
}

int save_offsets(const QueueOffsets *offsets, PyObject *queues)
{
    for (int at = 0; at < offsets->count; at++) {
        uint16_t queue_id = offsets->known[at];
        PyObject *number = PyLong_FromUnsignedLongLong(offsets->next[queue_id]);
        PyObject *queue = number ? PyList_GetItem(queues, queue_id) : NULL;
        int done = queue ? PyObject_SetAttr(queue, next_offset_name, number) : -1;
        Py_XDECREF(number);
        if (done < 0)
            return -1;
    }
    return 0;
}

#define KNOWN_MAX 16

/* Queues met lately with the tags codes they got: those of a run take turns. */
typedef struct {
    PyObject *queue, *code, *tail; /* the tail is owned */
} Known;

static Known *known_of(Known *known, int *next, PyObject *queue, PyObject *code, PyObject *found)
{
    for (int at = 0; at < KNOWN_MAX && known[at].queue; at++)
        if (known[at].queue == queue && known[at].code == code)
            return &known[at];
    PyObject *pair = PyTuple_Pack(2, queue, code), *tail = PyObject_GetAttr(queue, tail_name);
    int done = pair ? PySet_Add(found, pair) : -1;
    Py_XDECREF(pair);
    if (done < 0 || !tail || !PyByteArray_Check(tail)) {
        Py_XDECREF(tail);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "the tail of a queue is a bytearray");
        return NULL;
    }
    Known *one = &known[(*next)++ % KNOWN_MAX];
    Py_XDECREF(one->tail);
    *one = (Known){queue, code, tail};
    return one;
}

/* append_entries(entries) -> the set of (queue, tags code) in them: adds each (queue, phy_offset, size, code) to its
 * queue's `tail`, a bytearray, as it lies in the queue's file. */
PyObject *native_append_entries(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    if (given != 1 || !PyList_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "append_entries takes a list");
    /* A hash or a property may run Python, which may change the list: its entries are owned. */
    PyObject *owned = PyList_AsTuple(args[0]), *found = owned ? PySet_New(NULL) : NULL;
    Known known[KNOWN_MAX] = {{NULL, NULL, NULL}};
    int next = 0;
    Py_ssize_t count = owned ? PyTuple_Size(owned) : 0;
    for (Py_ssize_t number = 0; found && number < count; number++) {
        PyObject *entry = PyTuple_GetItem(owned, number);
        if (!PyTuple_Check(entry) || PyTuple_Size(entry) != 4) {
            PyErr_SetString(PyExc_TypeError, "an entry has four parts");
            break;
        }
        PyObject *code = PyTuple_GetItem(entry, 3);
        Known *one = known_of(known, &next, PyTuple_GetItem(entry, 0), code, found);
        if (!one)
            break;
        uint64_t phy_offset = PyLong_AsUnsignedLongLongMask(PyTuple_GetItem(entry, 1));
        uint32_t size = (uint32_t)PyLong_AsUnsignedLongMask(PyTuple_GetItem(entry, 2));
        uint64_t code_bits = PyLong_AsUnsignedLongLongMask(code);
        Py_ssize_t at = PyByteArray_Size(one->tail);
        if (PyErr_Occurred() || PyByteArray_Resize(one->tail, at + 20) < 0)
            break;
        uint8_t *out = (uint8_t *)PyByteArray_AsString(one->tail) + at;
        write64(out, phy_offset);
        write32(out + 8, size);
        write64(out + 12, code_bits);
    }
    for (int at = 0; at < KNOWN_MAX; at++)
        Py_XDECREF(known[at].tail);
    Py_XDECREF(owned);
    if (!PyErr_Occurred())
        return found;
    Py_XDECREF(found);
    return NULL;
}

/* The piece at a place of a buffer, which begins `base` bytes before it; 0: beyond the buffer, -1 with an error set. */
static int piece_at(const Py_buffer *view, long long base, PyObject *place, PyObject *size, Text *piece)
{
    if (!PyLong_Check(place) || !PyLong_Check(size)) {
        PyErr_SetString(PyExc_TypeError, "places and sizes are numbers");
        return -1;
    }
    long long at = PyLong_AsLongLong(place);
    Py_ssize_t count = PyLong_AsSsize_t(size);
    if (PyErr_Occurred())
        return -1;
    if (count < 0 || count > view->len || at < base || (uint64_t)at - (uint64_t)base > (uint64_t)(view->len - count))
        return 0;
    piece->bytes = (const uint8_t *)view->buf + ((uint64_t)at - (uint64_t)base);
    piece->count = (size_t)count;
    return 1;
}

/* gather(buffer, base, places, sizes) -> these pieces of a buffer, side by side; `places` count from `base` bytes before
 * it. None where one lies beyond it. */
PyObject *native_gather(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    if (given != 4 || !PyTuple_Check(args[2]) || !PyTuple_Check(args[3]) || PyTuple_Size(args[2]) != PyTuple_Size(args[3]))
        return PyErr_Format(PyExc_TypeError, "gather takes a buffer, a number and two tuples, equally long");
    long long base = PyLong_AsLongLong(args[1]);
    Py_ssize_t count = PyTuple_Size(args[2]), total = 0;
    Py_buffer view;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *found = NULL;
    Text piece;
    for (Py_ssize_t at = 0; at < count; at++) {
        int is_inside = piece_at(&view, base, PyTuple_GetItem(args[2], at), PyTuple_GetItem(args[3], at), &piece);
        if (is_inside <= 0 || piece.count > (size_t)(PY_SSIZE_T_MAX - total)) {
            found = is_inside < 0 ? NULL : Py_NewRef(Py_None);
            goto done;
        }
        total += (Py_ssize_t)piece.count;
    }
    found = PyBytes_FromStringAndSize(NULL, total);
    char *out = found ? PyBytes_AsString(found) : NULL;
    for (Py_ssize_t at = 0; found && at < count; at++) { /* numbers stay what they were */
        piece_at(&view, base, PyTuple_GetItem(args[2], at), PyTuple_GetItem(args[3], at), &piece);
        memcpy(out, piece.bytes, piece.count);
        out += piece.count;
    }
done:
    PyBuffer_Release(&view);
    return found;
}

int prepare_records(void)
{
    next_offset_name = PyUnicode_InternFromString("next_offset");
    tail_name = PyUnicode_InternFromString("tail");
    return next_offset_name && tail_name ? 0 : -1;
}
