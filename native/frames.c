/* Frames of sends whose headers have one layout, cut into columns; see `wire/templates/send_frame_batch.py`. */
#include "native.h"

#define VALUES_MAX 64
enum { QUEUE_ID, NUMBER, OPAQUE, TEXT, SHORT_TEXT, KINDS };

typedef struct {
    const uint8_t *bytes;
    size_t count;
} Piece;

static int is_plain(uint8_t byte) { return byte >= 32 && byte < 128 && byte != '"' && byte != '\\'; }

static int is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

/* How many bytes from `at` on are a value of this kind; 0: none is there. */
static size_t value_bytes(int kind, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *from = at;
    int is_text = kind == TEXT || kind == SHORT_TEXT;
    while (at < end && (is_text ? is_plain(*at) : is_digit(*at)))
        at++;
    size_t count = (size_t)(at - from);
    if (kind == SHORT_TEXT)
        return count <= 1024 ? count : 0;
    if (kind == NUMBER)
        return count <= 18 ? count : 0;
    if (kind == OPAQUE)
        return count <= 9 && count && *from != '0' ? count : 0;
    if (kind == QUEUE_ID) {
        int is_short = count == 1 || (count > 1 && count <= 4 && *from != '0');
        return is_short && (count < 4 || memcmp(from, "1024", 4) < 0) ? count : 0;
    }
    return count;
}

static uint64_t number_of(Piece digits)
{
    uint64_t number = 0;
    for (size_t at = 0; at < digits.count; at++)
        number = number * 10 + (uint64_t)(digits.bytes[at] - '0');
    return number;
}

static PyObject *bytes_from(Piece piece) { return PyBytes_FromStringAndSize((const char *)piece.bytes, (Py_ssize_t)piece.count); }

/* Match the header of a frame; where it does, `values` are what stands between the literals. */
static int match_header(const uint8_t *at, const uint8_t *end, const Piece *literals, const int *kinds, int count,
                        Piece *values)
{
    for (int number = 0;; number++) {
        if ((size_t)(end - at) < literals[number].count || memcmp(at, literals[number].bytes, literals[number].count))
            return 0;
        at += literals[number].count;
        if (number == count)
            return at == end;
        size_t size = value_bytes(kinds[number], at, end);
        if (!size)
            return 0;
        values[number].bytes = at;
        values[number].count = size;
        at += size;
    }
}

/* cut_frames(data, at, literals, kinds, queue_at, born_at, opaque_at, texts_at, texts_end, body_max,
 * queue_count) -> (queue ids, born times, opaques, texts, bodies, ends) of the frames from `at` on that are all there
 * and whose headers are the literals with values of these kinds between them; None where they are fewer than two. */
PyObject *native_cut_frames(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    size_t size;
    const uint8_t *data = given == 11 ? bytes_of(args[0], &size) : NULL;
    if (!data || !PyTuple_Check(args[2]) || !PyTuple_Check(args[3]))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "cut_frames takes eleven arguments");
    int count = (int)PyTuple_Size(args[3]);
    size_t at = PyLong_AsSize_t(args[1]), body_max = PyLong_AsSize_t(args[9]);
    uint64_t queue_count = PyLong_AsUnsignedLongLongMask(args[10]);
    long queue_at = PyLong_AsLong(args[4]), born_at = PyLong_AsLong(args[5]), opaque_at = PyLong_AsLong(args[6]);
    long texts_at = PyLong_AsLong(args[7]), texts_end = PyLong_AsLong(args[8]);
    if (PyErr_Occurred())
        return NULL;
    if (count > VALUES_MAX || PyTuple_Size(args[2]) != count + 1 || queue_at < 0 || queue_at >= count || born_at < 0 ||
        born_at >= count || opaque_at < 0 || opaque_at >= count || texts_at < 0 || texts_end > count || texts_end < texts_at)
        return PyErr_Format(PyExc_ValueError, "values that the literals have no place for");
    Piece literals[VALUES_MAX + 1], values[VALUES_MAX];
    int kinds[VALUES_MAX];
    for (int number = 0; number <= count; number++) {
        literals[number].bytes = bytes_of(PyTuple_GetItem(args[2], number), &literals[number].count);
        if (!literals[number].bytes)
            return NULL;
        if (number < count) {
            kinds[number] = (int)PyLong_AsLong(PyTuple_GetItem(args[3], number));
            if (PyErr_Occurred())
                return NULL;
        }
    }
    int text_count = (int)(texts_end - texts_at), columns = 5 + text_count;
    PyObject *lists[5 + VALUES_MAX] = {NULL}, *result = NULL, *texts = NULL;
    for (int column = 0; column < columns; column++)
        if (!(lists[column] = PyList_New(0)))
            goto done;
    while (size - at > 8) { /* at <= size */
        uint64_t header_bytes = read32(data + at + 4), body_at = at + 8 + header_bytes;
        uint64_t end = (uint64_t)at + 4 + read32(data + at);
        if (header_bytes >> 24 || end > size || body_at >= end || end - body_at > body_max)
            break;
        if (!match_header(data + at + 8, data + body_at, literals, kinds, count, values) ||
            number_of(values[queue_at]) >= queue_count)
            break;
        Piece body = {data + body_at, (size_t)(end - body_at)};
        PyObject *cells[5 + VALUES_MAX];
        cells[0] = PyLong_FromUnsignedLongLong(number_of(values[queue_at]));
        cells[1] = PyLong_FromUnsignedLongLong(number_of(values[born_at]));
        cells[2] = bytes_from(values[opaque_at]);
        cells[3] = bytes_from(body);
        cells[4] = PyLong_FromUnsignedLongLong(end);
        for (int text = 0; text < text_count; text++)
            cells[5 + text] = bytes_from(values[texts_at + text]);
        int failed = 0;
        for (int column = 0; column < columns; column++) {
            failed |= !cells[column] || PyList_Append(lists[column], cells[column]) < 0;
            Py_XDECREF(cells[column]);
        }
        if (failed)
            goto done;
        at = (size_t)end;
    }
    if (PyList_Size(lists[0]) < 2) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    texts = PyTuple_New(text_count);
    for (int text = 0; texts && text < text_count; text++) {
        PyObject *column = PyList_AsTuple(lists[5 + text]);
        if (!column)
            goto done;
        PyTuple_SetItem(texts, text, column);
    }
    if (texts)
        result = Py_BuildValue("OOOOOO", lists[0], lists[1], lists[2], texts, lists[3], lists[4]);
done:
    for (int column = 0; column < columns; column++)
        Py_XDECREF(lists[column]);
    Py_XDECREF(texts);
    return result;
}
