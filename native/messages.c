/* A producer's messages: whether they make one plain batch, its body, and what the answer to it says of each.
 *
 * See `client/producer/plain_batch.py`, `client/producer/send_fast_path.py` and `wire/records/message_batch.py`.
 */
#include "native.h"
#include <limits.h>
#include <structmember.h>

#define TEXT_MAX 1024
#define KEY_DIGITS 3 /* of the number in a UNIQ_KEY */
#define KEY_AT 11 /* in the properties, behind their length: UNIQ_KEY and its mark come first */
#define RESULT_FIELDS 9
enum { TOPIC, BODY, TAGS, KEYS, PROPERTIES, SHARDING_KEY, DELAY_LEVEL, DUE, FLAG, WAIT_STORE_OK, FIELDS };

static const char *const names[FIELDS] = {"topic",        "body",        "tags", "keys", "properties",
                                          "sharding_key", "delay_level", "due",  "flag", "wait_store_ok"};
static PyObject *zero;

int prepare_messages(void)
{
    zero = PyLong_FromLong(0);
    return zero ? 0 : -1;
}

/* Where the slots of messages of this type lie; -1 with an error set. Measured: ten attributes by name take 0.2 us. */
static int slots_of(PyObject *kind, Py_ssize_t *slots)
{
    const PyMemberDef *members = PyType_Check(kind) ? PyType_GetSlot((PyTypeObject *)kind, Py_tp_members) : NULL;
    for (int field = 0; field < FIELDS; field++) {
        const PyMemberDef *member = members;
        while (member && member->name && strcmp(member->name, names[field]))
            member++;
        if (!member || !member->name || member->type != T_OBJECT_EX) {
            PyErr_Format(PyExc_TypeError, "messages of this type have no slot %s", names[field]);
            return -1;
        }
        slots[field] = member->offset;
    }
    return 0;
}

/* The fields of a message, borrowed; 0 where one was deleted. */
static int read_fields(PyObject *message, const Py_ssize_t *slots, PyObject **fields)
{
    for (int field = 0; field < FIELDS; field++)
        if (!(fields[field] = *(PyObject **)((char *)message + slots[field])))
            return 0;
    return 1;
}

/* Whether there are no properties, as far as can be told without running Python. */
static int is_empty(PyObject *properties)
{
    return properties == Py_None || (Py_IS_TYPE(properties, &PyDict_Type) && !PyDict_Size(properties));
}

/* Whether the fields are those of a plain message of this topic; -1 with an error set. Runs no Python. */
static int is_plain(PyObject **fields, PyObject *topic)
{
    if (!Py_IS_TYPE(fields[TOPIC], &PyUnicode_Type) || !is_empty(fields[PROPERTIES]))
        return 0;
    int is_other = fields[TOPIC] != topic ? PyObject_RichCompareBool(fields[TOPIC], topic, Py_NE) : 0;
    if (is_other)
        return is_other < 0 ? -1 : 0;
    return Py_IS_TYPE(fields[BODY], &PyBytes_Type) && PyBytes_Size(fields[BODY]) > 0 && fields[SHARDING_KEY] == Py_None &&
           fields[DELAY_LEVEL] == zero && fields[DUE] == Py_None && fields[FLAG] == zero &&
           fields[WAIT_STORE_OK] == Py_True;
}

/* The bytes of keys that can stand in properties; no bytes for none; 0: they cannot, -1 with an error set. Runs no
 * Python. */
static int keys_of(PyObject *given, Text *keys)
{
    keys->count = 0;
    if (given == Py_None)
        return 1;
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
    int is_blank = count > 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (text[at] < ' ' || text[at] > '~')
            return 0;
        is_blank &= text[at] == ' ';
    }
    keys->bytes = (const uint8_t *)text;
    keys->count = (size_t)count;
    return !is_blank && count <= TEXT_MAX;
}

/* What a batch has of one message; all but the text are owned. */
typedef struct {
    PyObject *body, *tail, *keys;
    Text text; /* of the keys */
} Packed;

/* The sizes of the properties and of the whole message in a batch. */
static size_t raw_bytes_of(const Packed *one, size_t key_bytes)
{
    return KEY_AT - 2 + key_bytes + 1 + (size_t)PyBytes_Size(one->tail) + (one->text.count ? one->text.count + 6 : 0);
}

static size_t packed_bytes_of(const Packed *one, size_t key_bytes)
{
    return ITEM_HEAD_BYTES + 2 + (size_t)PyBytes_Size(one->body) + raw_bytes_of(one, key_bytes);
}

/* Take what a batch has of a message; 0: it is not plain, -1 with an error set. `tags` and `tail`, owned, are those of
 * the message before. */
static int take_message(PyObject **fields, PyObject *topic, PyObject *tail_of, PyObject **tags, PyObject **tail,
                        Packed *one)
{
    int taken = is_plain(fields, topic);
    if (taken > 0)
        taken = keys_of(fields[KEYS], &one->text);
    if (taken <= 0)
        return taken;
    one->body = Py_NewRef(fields[BODY]);
    one->keys = Py_NewRef(fields[KEYS]);
    if (!*tail || fields[TAGS] != *tags) {
        if (fields[TAGS] != Py_None && !Py_IS_TYPE(fields[TAGS], &PyUnicode_Type))
            return 0;
        Py_XDECREF(*tail);
        Py_XDECREF(*tags);
        *tags = Py_NewRef(fields[TAGS]);
        *tail = PyObject_CallFunctionObjArgs(tail_of, *tags, NULL); /* no field is looked at afterwards */
        if (!*tail)
            return -1;
    }
    if (!Py_IS_TYPE(*tail, &PyBytes_Type))
        return 0;
    one->tail = Py_NewRef(*tail);
    return 1;
}

static uint8_t *write_message(uint8_t *out, const Packed *one, size_t key_bytes)
{
    size_t body_bytes = (size_t)PyBytes_Size(one->body), tail_bytes = (size_t)PyBytes_Size(one->tail);
    size_t raw_bytes = raw_bytes_of(one, key_bytes);
    memset(out, 0, ITEM_HEAD_BYTES);
    write32(out, (uint32_t)(ITEM_HEAD_BYTES + 2 + body_bytes + raw_bytes));
    write32(out + 16, (uint32_t)body_bytes);
    memcpy(out + ITEM_HEAD_BYTES, PyBytes_AsString(one->body), body_bytes);
    out += ITEM_HEAD_BYTES + body_bytes;
    write16(out, (uint16_t)raw_bytes);
    memcpy(out + 2, "UNIQ_KEY\1", KEY_AT - 2);
    memset(out + KEY_AT, '0', key_bytes);
    out += KEY_AT + key_bytes;
    *out++ = 2;
    memcpy(out, PyBytes_AsString(one->tail), tail_bytes);
    out += tail_bytes;
    if (one->text.count) {
        memcpy(out, "KEYS\1", 5);
        memcpy(out + 5, one->text.bytes, one->text.count);
        out += 5 + one->text.count;
        *out++ = 2;
    }
    return out;
}

/* The body of a batch whose keys are yet to be filled in; None: it would have more than `most` bytes. */
static PyObject *body_of(const Packed *packed, Py_ssize_t count, size_t key_bytes, size_t most)
{
    size_t total = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (raw_bytes_of(&packed[at], key_bytes) > 0x7FFF)
            return Py_NewRef(Py_None);
        total += packed_bytes_of(&packed[at], key_bytes);
    }
    if (total > most || total > 0x7FFFFFFF)
        return Py_NewRef(Py_None);
    PyObject *body = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total);
    uint8_t *out = body ? (uint8_t *)PyByteArray_AsString(body) : NULL;
    for (Py_ssize_t at = 0; body && at < count; at++)
        out = write_message(out, &packed[at], key_bytes);
    return body;
}

/* pack_messages(messages, kind, tail_of, key_bytes, most) -> the body of a batch, a bytearray, of messages of exactly this
 * type that make one plain batch, with digits 0 where `fill_keys` puts the UNIQ_KEYs of so many bytes. None for others,
 * and for a body of more than `most` bytes. `tail_of` gives the properties of a tag, None for an unusual one. */
PyObject *native_pack_messages(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Py_ssize_t slots[FIELDS];
    if (given != 5 || !PyList_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "pack_messages takes a list, a type, a function and two numbers");
    size_t key_bytes = PyLong_AsSize_t(args[3]), most = PyLong_AsSize_t(args[4]);
    if (PyErr_Occurred() || slots_of(args[1], slots) < 0)
        return NULL;
    if (key_bytes > TEXT_MAX || PyList_Size(args[0]) > BATCH_MESSAGES_MAX)
        return PyErr_Format(PyExc_ValueError, "at most %d messages, with keys of %d bytes", BATCH_MESSAGES_MAX, TEXT_MAX);
    /* The list may change while `tail_of` runs. */
    PyObject *messages = PyList_AsTuple(args[0]), *topic = NULL, *tags = NULL, *tail = NULL, *found = NULL;
    Py_ssize_t count = messages ? PyTuple_Size(messages) : 0, at = 0;
    Packed *packed = messages ? PyMem_Calloc((size_t)count + 1, sizeof(Packed)) : NULL;
    int taken = packed ? 1 : -1;
    if (messages && !packed)
        PyErr_NoMemory();
    for (; taken > 0 && at < count; at++) {
        PyObject *message = PyTuple_GetItem(messages, at), *fields[FIELDS];
        taken = (PyObject *)Py_TYPE(message) == args[1] && read_fields(message, slots, fields);
        if (taken > 0 && !topic)
            topic = Py_IS_TYPE(fields[TOPIC], &PyUnicode_Type) ? Py_NewRef(fields[TOPIC]) : NULL;
        if (taken > 0)
            taken = topic ? take_message(fields, topic, args[2], &tags, &tail, &packed[at]) : 0;
    }
    if (taken >= 0)
        found = taken ? body_of(packed, count, key_bytes, most) : Py_NewRef(Py_None);
    while (at--) {
        Py_XDECREF(packed[at].body);
        Py_XDECREF(packed[at].tail);
        Py_XDECREF(packed[at].keys);
    }
    PyMem_Free(packed);
    Py_XDECREF(messages);
    Py_XDECREF(topic);
    Py_XDECREF(tags);
    Py_XDECREF(tail);
    return found;
}

/* number_keys(text, first, count) -> so many texts that begin with this one, of ASCII, and end with three hex digits: the
 * numbers from `first` on. */
PyObject *native_number_keys(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Py_ssize_t bytes = 0;
    const char *text = given == 3 ? PyUnicode_AsUTF8AndSize(args[0], &bytes) : NULL;
    if (!text)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "number_keys takes a text and two numbers");
    Py_ssize_t first = PyLong_AsSsize_t(args[1]), count = PyLong_AsSsize_t(args[2]);
    char key[TEXT_MAX + KEY_DIGITS];
    if (PyErr_Occurred())
        return NULL;
    if (bytes > TEXT_MAX || !is_ascii((const uint8_t *)text, (size_t)bytes) || first < 0 || count < 0 ||
        first > 0x1000 || count > 0x1000 - first)
        return PyErr_Format(PyExc_ValueError, "a short text of ASCII, and numbers below 4096");
    memcpy(key, text, (size_t)bytes);
    PyObject *keys = PyList_New(count);
    for (Py_ssize_t at = 0; keys && at < count; at++) {
        write_hex((uint8_t *)key + bytes, (uint64_t)(first + at), KEY_DIGITS);
        PyObject *one = PyUnicode_FromStringAndSize(key, bytes + KEY_DIGITS);
        if (one)
            PyList_SetItem(keys, at, one);
        else
            Py_CLEAR(keys);
    }
    return keys;
}

/* fill_keys(body, keys): put these UNIQ_KEYs into a body that `pack_messages` made; ValueError where it is of another
 * form, or there are more or fewer messages than keys. */
PyObject *native_fill_keys(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    if (given != 2 || !PyByteArray_Check(args[0]) || !PyList_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "fill_keys takes a bytearray and a list");
    uint8_t *at = (uint8_t *)PyByteArray_AsString(args[0]), *end = at + PyByteArray_Size(args[0]);
    Py_ssize_t number = 0, count = PyList_Size(args[1]);
    for (; number < count; number++) {
        Py_ssize_t key_bytes;
        const char *key = PyUnicode_AsUTF8AndSize(PyList_GetItem(args[1], number), &key_bytes);
        if (!key)
            return NULL;
        size_t room = (size_t)(end - at), size = room < ITEM_HEAD_BYTES ? 0 : read32(at);
        size_t key_at = room < ITEM_HEAD_BYTES ? 0 : ITEM_HEAD_BYTES + (size_t)read32(at + 16) + KEY_AT;
        if (size > room || key_at + (size_t)key_bytes >= size || at[key_at - 1] != 1 || at[key_at + (size_t)key_bytes] != 2)
            break;
        memcpy(at + key_at, key, (size_t)key_bytes);
        at += size;
    }
    if (number < count || at != end)
        return PyErr_Format(PyExc_ValueError, "a body with other messages, or with room for other keys");
    Py_RETURN_NONE;
}

/* Where the values lie that differ from result to result, of which one tuple has those of the current message. */
enum { MSG_ID = 1, QUEUE_OFFSET = 3, OFFSET_MSG_ID = 4 };

/* Put the values of a message into a tuple that nobody else has; 0 with an error set. Steals `place`. */
static int set_values(PyObject *values, PyObject *id, long long offset, PyObject *place)
{
    PyObject *number = PyLong_FromLongLong(offset);
    int failed = PyTuple_SetItem(values, MSG_ID, Py_NewRef(id)) < 0;
    failed |= PyTuple_SetItem(values, QUEUE_OFFSET, number) < 0;
    failed |= PyTuple_SetItem(values, OFFSET_MSG_ID, place) < 0;
    return number && place && !failed;
}

/* batch_results(kind, shared, ids, first, offset_ids) -> one result, a tuple of this type, for each id: the values of
 * `shared` with that id, with queue offsets from `first` on and the offset ids of a text, which are parted by commas; all
 * of it where they are not as many. None for a text beyond ASCII and for offsets that are no 64-bit numbers. */
PyObject *native_batch_results(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Py_ssize_t bytes;
    if (given != 5 || !PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], &PyTuple_Type) ||
        args[0] == (PyObject *)&PyTuple_Type || !PyTuple_Check(args[1]) || PyTuple_Size(args[1]) != RESULT_FIELDS ||
        !PyList_Check(args[2]) || !PyLong_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "batch_results takes a type, nine values, a list, a number and a text");
    const char *text = PyUnicode_AsUTF8AndSize(args[4], &bytes);
    if (!text)
        return NULL;
    Py_ssize_t count = PyList_Size(args[2]), pieces = 1, from = 0;
    long long first = PyLong_AsLongLong(args[3]);
    int is_large = PyErr_Occurred() || first > LLONG_MAX - count;
    PyErr_Clear();
    if (is_large || bytes != PyUnicode_GetLength(args[4]))
        return Py_NewRef(Py_None);
    newfunc make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    for (const char *at = text; (at = memchr(at, ',', (size_t)(text + bytes - at))); at++)
        pieces++;
    PyObject *results = PyList_New(count);
    PyObject *values = PyTuple_New(RESULT_FIELDS);
    for (int field = 0; values && field < RESULT_FIELDS; field++)
        PyTuple_SetItem(values, field, Py_NewRef(PyTuple_GetItem(args[1], field)));
    if (!values)
        Py_CLEAR(results);
    for (Py_ssize_t number = 0; results && number < count; number++) {
        const char *comma = memchr(text + from, ',', (size_t)(bytes - from));
        Py_ssize_t to = comma ? comma - text : bytes;
        PyObject *place = pieces == count ? PyUnicode_Substring(args[4], from, to) : Py_NewRef(args[4]);
        from = to < bytes ? to + 1 : bytes;
        int done = set_values(values, PyList_GetItem(args[2], number), first + number, place);
        PyObject *arguments = done ? PyTuple_Pack(1, values) : NULL;
        PyObject *result = arguments ? make((PyTypeObject *)args[0], arguments, NULL) : NULL;
        Py_XDECREF(arguments);
        if (result)
            PyList_SetItem(results, number, result);
        else
            Py_CLEAR(results);
    }
    Py_XDECREF(values);
    return results;
}
