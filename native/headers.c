/* Headers of requests that a connection sends again and again; see `wire/templates/header_template.py`. */
#include "headers.h"

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

uint64_t number_of(Text digits)
{
    uint64_t number = 0;
    for (size_t at = 0; at < digits.count; at++)
        number = number * 10 + (uint64_t)(digits.bytes[at] - '0');
    return number;
}

int match_header(const uint8_t *at, const uint8_t *end, const HeaderForm *form, Text *values)
{
    for (int number = 0;; number++) {
        Text literal = form->literals[number];
        if ((size_t)(end - at) < literal.count || memcmp(at, literal.bytes, literal.count))
            return 0;
        at += literal.count;
        if (number == form->count)
            return at == end;
        size_t size = value_bytes(form->kinds[number], at, end);
        if (!size)
            return 0;
        values[number].bytes = at;
        values[number].count = size;
        at += size;
    }
}

int texts_from(PyObject *given, Text *texts, Py_ssize_t count)
{
    if (!PyTuple_Check(given) || PyTuple_Size(given) != count) {
        PyErr_SetString(PyExc_ValueError, "a form with other pieces than gaps");
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        if (!(texts[at].bytes = bytes_of(PyTuple_GetItem(given, at), &texts[at].count)))
            return -1;
    return 0;
}

int header_form_of(PyObject *literals, PyObject *kinds, HeaderForm *form)
{
    if (!PyTuple_Check(kinds) || PyTuple_Size(kinds) > VALUES_MAX) {
        PyErr_SetString(PyExc_TypeError, "the kinds of a header's values are a tuple, and few");
        return -1;
    }
    form->count = (int)PyTuple_Size(kinds);
    for (int at = 0; at < form->count; at++)
        form->kinds[at] = (int)PyLong_AsLong(PyTuple_GetItem(kinds, at));
    return PyErr_Occurred() ? -1 : texts_from(literals, form->literals, form->count + 1);
}
