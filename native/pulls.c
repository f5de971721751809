/* Pulls: those of a chunk cut together, and the records that the entries of a queue stand for.
 *
 * See `broker/pulls/pull_fast_path.py` and `store/queues/queue_reader.py`.
 */
#include "headers.h"

#define ENTRY_BYTES 20
#define PULLS_MAX 16 /* the rest is cut again where one of them takes another way */
enum { PULLED_QUEUE, PULLED_OFFSET, COMMITTED_OFFSET, PULL_OPAQUE, PULL_VALUES };

/* The values of a pull that ends at a byte of its chunk; NULL with an error set. */
static PyObject *pull_of(const Text *values, const long *places, size_t end)
{
    Text opaque = values[places[PULL_OPAQUE]];
    return Py_BuildValue("nKKKy#", (Py_ssize_t)end, (unsigned long long)number_of(values[places[PULLED_QUEUE]]),
                         (unsigned long long)number_of(values[places[PULLED_OFFSET]]),
                         (unsigned long long)number_of(values[places[COMMITTED_OFFSET]]), (const char *)opaque.bytes,
                         (Py_ssize_t)opaque.count);
}

/* cut_pulls(data, at, (literals, kinds, queue_at, offset_at, commit_at, opaque_at)) -> (end, queue id, queue offset,
 * commit offset, opaque in digits) of each pull from `at` of a chunk on whose header matches. */
PyObject *native_cut_pulls(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    size_t size, at = given == 3 ? PyLong_AsSize_t(args[1]) : 0;
    const uint8_t *data = given == 3 && !PyErr_Occurred() ? bytes_of(args[0], &size) : NULL;
    if (!data || !PyTuple_Check(args[2]) || PyTuple_Size(args[2]) != 2 + PULL_VALUES)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "cut_pulls takes bytes, a place and six parts");
    HeaderForm form;
    Text values[VALUES_MAX];
    long places[PULL_VALUES];
    if (header_form_of(PyTuple_GetItem(args[2], 0), PyTuple_GetItem(args[2], 1), &form) < 0)
        return NULL;
    for (int place = 0; place < PULL_VALUES; place++) {
        places[place] = PyLong_AsLong(PyTuple_GetItem(args[2], 2 + place));
        if (PyErr_Occurred() || places[place] < 0 || places[place] >= form.count)
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a pull has no value %ld", places[place]);
    }
    PyObject *pulls = PyList_New(0);
    for (int count = 0; pulls && count < PULLS_MAX && at <= size && size - at > 8; count++) {
        uint64_t header_bytes = read32(data + at + 4), end = (uint64_t)at + 4 + read32(data + at);
        if (header_bytes >> 24 || end > size || end != at + 8 + header_bytes ||
            !match_header(data + at + 8, data + end, &form, values))
            break;
        PyObject *pull = pull_of(values, places, (size_t)end);
        if (!pull || PyList_Append(pulls, pull) < 0)
            Py_CLEAR(pulls);
        Py_XDECREF(pull);
        at = (size_t)end;
    }
    return pulls;
}

/* How many of the entries' records fit, side by side, into `bytes_max`, and their bytes; 0: none, or an entry is damaged
 * or of another file. */
static Py_ssize_t measure_entries(const Py_buffer *entries, uint64_t file_bytes, uint64_t base, uint64_t bytes_max,
                                  uint64_t *total)
{
    Py_ssize_t count = 0;
    *total = 0;
    for (const uint8_t *at = entries->buf; count < entries->len / ENTRY_BYTES; count++, at += ENTRY_BYTES) {
        uint64_t place = read64(at) - base, size = read32(at + 8);
        if (!size || size > file_bytes || place > file_bytes - size)
            return 0;
        if (size > bytes_max - *total)
            break;
        *total += size;
    }
    return count;
}

/* read_records(entries, file, file_bytes, base, bytes_max) -> (count, bytes): the records that packed entries of a queue
 * stand for, side by side, as many as fit; the file's `file_bytes` begin at place `base` of the log. None: none fits, or an
 * entry is damaged or of another file. */
PyObject *native_read_records(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    if (given != 5)
        return PyErr_Format(PyExc_TypeError, "read_records takes five arguments");
    uint64_t total, file_bytes = PyLong_AsUnsignedLongLong(args[2]), base = PyLong_AsUnsignedLongLong(args[3]);
    uint64_t bytes_max = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(args[4]);
    Py_buffer entries, file;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &entries, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[1], &file, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&entries);
        return NULL;
    }
    PyObject *found = NULL;
    file_bytes = file_bytes < (uint64_t)file.len ? file_bytes : (uint64_t)file.len;
    Py_ssize_t count = measure_entries(&entries, file_bytes, base, bytes_max, &total);
    PyObject *body = count ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total) : Py_NewRef(Py_None);
    if (body && count) {
        char *out = PyBytes_AsString(body);
        const uint8_t *at = entries.buf;
        for (Py_ssize_t number = 0; number < count; number++, at += ENTRY_BYTES) {
            size_t size = read32(at + 8);
            memcpy(out, (const uint8_t *)file.buf + (read64(at) - base), size);
            out += size;
        }
        found = Py_BuildValue("nN", count, body);
    } else {
        found = body;
    }
    PyBuffer_Release(&file);
    PyBuffer_Release(&entries);
    return found;
}
