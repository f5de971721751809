/* A producer's messages: whether they make one plain batch, and the body of a batch.
 *
 * See `client/producer/plain_batch.py` and `wire/records/message_batch.py`.
 */
#include "native.h"

#define TEXT_MAX 1024
#define HEAD_BYTES 20

enum { TOPIC, BODY, TAGS, KEYS, PROPERTIES, SHARDING_KEY, DELAY_LEVEL, DUE, FLAG, WAIT_STORE_OK, FIELDS };

static PyObject *names[FIELDS], *zero;

int prepare_messages(void)
{
    static const char *const texts[FIELDS] = {"topic",        "body",        "tags", "keys", "properties",
                                              "sharding_key", "delay_level", "due",  "flag", "wait_store_ok"};
    for (int field = 0; field < FIELDS; field++)
        if (!(names[field] = PyUnicode_InternFromString(texts[field])))
            return -1;
    zero = PyLong_FromLong(0);
    return zero ? 0 : -1;
}

static void release(PyObject **fields)
{
    for (int field = 0; field < FIELDS; field++)
        Py_CLEAR(fields[field]);
}

/* Whether the fields are those of a plain message of this topic; -1 with an error set. */
static int is_plain(PyObject **fields, PyObject *topic)
{
    int is_other = fields[TOPIC] != topic ? PyObject_RichCompareBool(fields[TOPIC], topic, Py_NE) : 0;
    int has_more = is_other ? is_other : PyObject_IsTrue(fields[PROPERTIES]);
    if (has_more < 0)
        return -1;
    return !has_more && Py_IS_TYPE(fields[BODY], &PyBytes_Type) && PyBytes_Size(fields[BODY]) > 0 &&
           fields[SHARDING_KEY] == Py_None && fields[DELAY_LEVEL] == zero && fields[DUE] == Py_None &&
           fields[FLAG] == zero && fields[WAIT_STORE_OK] == Py_True;
}

/* The bytes of keys that can stand in properties; no bytes for none; 0: they cannot, -1 with an error set. */
static int keys_of(PyObject *given, Text *keys)
{
    keys->count = 0;
    int is_given = given == Py_None ? 0 : PyObject_IsTrue(given);
    if (is_given <= 0)
        return is_given < 0 ? -1 : 1;
    if (!Py_IS_TYPE(given, &PyUnicode_Type))
        return 0;
    Py_ssize_t count;
    const char *text = PyUnicode_AsUTF8AndSize(given, &count);
    if (!text) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return -1;
        PyErr_Clear(); /* a lone surrogate */
        return 0;
    }
    int is_blank = 1;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (text[at] < ' ' || text[at] > '~')
            return 0;
        is_blank &= text[at] == ' ';
    }
    keys->bytes = (const uint8_t *)text;
    keys->count = (size_t)count;
    return !is_blank && count <= TEXT_MAX;
}

/* The properties behind UNIQ_KEY: those of the tag, and the keys. */
static PyObject *with_keys(PyObject *tail, Text keys)
{
    if (!keys.count)
        return Py_NewRef(tail);
    size_t count;
    const uint8_t *bytes = bytes_of(tail, &count);
    PyObject *made = bytes ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count + keys.count + 6)) : NULL;
    if (made) {
        char *out = PyBytes_AsString(made);
        memcpy(out, bytes, count);
        memcpy(out + count, "KEYS\1", 5);
        memcpy(out + count + 5, keys.bytes, keys.count);
        out[count + 5 + keys.count] = 2;
    }
    return made;
}

/* Add a message's body and properties; 0: it is not plain, -1 with an error set. `tags` and `tail`, owned, are those of
 * the message before. */
static int add_message(PyObject **fields, PyObject *topic, PyObject *tail_of, PyObject **tags, PyObject **tail,
                       PyObject *bodies, PyObject *tails)
{
    Text keys;
    int taken = is_plain(fields, topic);
    if (taken > 0)
        taken = keys_of(fields[KEYS], &keys);
    if (taken <= 0)
        return taken;
    if (!*tail || fields[TAGS] != *tags) {
        if (fields[TAGS] != Py_None && !Py_IS_TYPE(fields[TAGS], &PyUnicode_Type))
            return 0;
        Py_XDECREF(*tail);
        Py_XDECREF(*tags);
        *tags = Py_NewRef(fields[TAGS]);
        *tail = PyObject_CallFunctionObjArgs(tail_of, *tags, NULL);
        if (!*tail)
            return -1;
    }
    if (*tail == Py_None)
        return 0;
    PyObject *whole = with_keys(*tail, keys);
    int done = whole ? PyList_Append(tails, whole) : -1;
    Py_XDECREF(whole);
    return done < 0 || PyList_Append(bodies, fields[BODY]) < 0 ? -1 : 1;
}

/* plain_columns(messages, kind, tail_of) -> (bodies, properties behind UNIQ_KEY) of messages of exactly this type that
 * make one plain batch; None for others. `tail_of` gives the properties of a tag, None for an unusual one. */
PyObject *native_plain_columns(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    if (given != 3 || !PyList_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "plain_columns takes a list, a type and a function");
    PyObject *fields[FIELDS] = {NULL}, *topic = NULL, *tags = NULL, *tail = NULL, *found = NULL;
    PyObject *bodies = PyList_New(0), *tails = PyList_New(0);
    int taken = bodies && tails ? 1 : -1;
    /* The list may change while `tail_of` runs: its size is asked again and each message is owned. */
    for (Py_ssize_t at = 0; taken > 0 && at < PyList_Size(args[0]); at++) {
        PyObject *message = Py_NewRef(PyList_GetItem(args[0], at));
        taken = (PyObject *)Py_TYPE(message) == args[1];
        for (int field = 0; taken > 0 && field < FIELDS; field++)
            if (!(fields[field] = PyObject_GetAttr(message, names[field])))
                taken = -1;
        if (taken > 0 && !topic)
            topic = Py_IS_TYPE(fields[TOPIC], &PyUnicode_Type) ? Py_NewRef(fields[TOPIC]) : NULL;
        if (taken > 0)
            taken = topic ? add_message(fields, topic, args[2], &tags, &tail, bodies, tails) : 0;
        release(fields);
        Py_DECREF(message);
    }
    if (taken >= 0)
        found = taken ? PyTuple_Pack(2, bodies, tails) : Py_NewRef(Py_None);
    Py_XDECREF(topic);
    Py_XDECREF(tags);
    Py_XDECREF(tail);
    Py_XDECREF(bodies);
    Py_XDECREF(tails);
    return found;
}

typedef struct {
    Text key, body, tail;
} Item;

static int item_at(PyObject *const *columns, Py_ssize_t at, Item *item)
{
    Py_ssize_t count = 0;
    const char *key = PyUnicode_AsUTF8AndSize(PyList_GetItem(columns[0], at), &count);
    item->key.bytes = (const uint8_t *)key;
    item->key.count = (size_t)count;
    item->body.bytes = key ? bytes_of(PyList_GetItem(columns[1], at), &item->body.count) : NULL;
    item->tail.bytes = item->body.bytes ? bytes_of(PyList_GetItem(columns[2], at), &item->tail.count) : NULL;
    if (item->tail.bytes && (item->key.count + item->tail.count + 10 > 0x7FFF || item->body.count > 0x7FFFFFFF - 0x8100)) {
        PyErr_SetString(PyExc_ValueError, "a message that is too long for a batch");
        return -1;
    }
    return item->tail.bytes ? 0 : -1;
}

/* encode_keyed(keys, bodies, others) -> the body of a batch; see `message_batch.encode_keyed`. */
PyObject *native_encode_keyed(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    for (int column = 0; column < 3; column++)
        if (given != 3 || !PyList_Check(args[column]) || PyList_Size(args[column]) != PyList_Size(args[0]))
            return PyErr_Format(PyExc_TypeError, "encode_keyed takes three lists, equally long");
    Py_ssize_t count = PyList_Size(args[0]);
    size_t total = 0;
    Item item;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (item_at(args, at, &item) < 0)
            return NULL;
        total += HEAD_BYTES + 2 + item.body.count + item.key.count + 10 + item.tail.count;
    }
    PyObject *body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    uint8_t *out = body ? (uint8_t *)PyBytes_AsString(body) : NULL;
    for (Py_ssize_t at = 0; body && at < count; at++) {
        if (item_at(args, at, &item) < 0) {
            Py_DECREF(body);
            return NULL;
        }
        size_t raw = item.key.count + 10 + item.tail.count;
        memset(out, 0, HEAD_BYTES);
        write32(out, (uint32_t)(HEAD_BYTES + 2 + item.body.count + raw));
        write32(out + 16, (uint32_t)item.body.count);
        memcpy(out + HEAD_BYTES, item.body.bytes, item.body.count);
        out += HEAD_BYTES + item.body.count;
        write16(out, (uint16_t)raw);
        memcpy(out + 2, "UNIQ_KEY\1", 9);
        memcpy(out + 11, item.key.bytes, item.key.count);
        out += 11 + item.key.count;
        *out++ = 2;
        memcpy(out, item.tail.bytes, item.tail.count);
        out += item.tail.count;
    }
    return body;
}
