/* Sends whose headers match a template: their frames cut, their records made, their answers written.
 *
 * See `broker/sends/send_fast_path.py` and `wire/templates/send_template.py`.
 */
#include "headers.h"
#include "records.h"

#define RAW_MAX 32767
#define FRAMES_MAX 4096
enum { PHY_OFFSET, ANSWERED_QUEUE, QUEUE_OFFSET, UNIQUE, ANSWERED_OPAQUE, ANSWER_GAPS };

/* What the headers of one template have in common, and what becomes of their sends. */
typedef struct {
    HeaderForm header;
    Text properties[VALUES_MAX + 1], answer[ANSWER_GAPS + 1];
    int text_count;
    long queue_at, born_at, opaque_at, texts_at, unique_at, tags_at;
    uint64_t queue_count;
    PyObject *code; /* of all, where there is no tag that changes */
} Form;

/* Read (literals, kinds, queue_at, born_at, opaque_at, texts_at, unique_at, tags_at, properties, answer, code,
 * queue_count); the places count the values of a header, `unique_at` and `tags_at` the texts. */
static int form_of(PyObject *given, Form *form)
{
    long *places[] = {&form->queue_at, &form->born_at, &form->opaque_at, &form->texts_at, &form->unique_at, &form->tags_at};
    if (!PyTuple_Check(given) || PyTuple_Size(given) != 12 || !PyTuple_Check(PyTuple_GetItem(given, 8))) {
        PyErr_SetString(PyExc_TypeError, "a form has twelve parts");
        return -1;
    }
    HeaderForm *header = &form->header;
    if (header_form_of(PyTuple_GetItem(given, 0), PyTuple_GetItem(given, 1), header) < 0)
        return -1;
    for (int place = 0; place < 6; place++)
        *places[place] = PyLong_AsLong(PyTuple_GetItem(given, 2 + place));
    form->code = PyTuple_GetItem(given, 10);
    form->queue_count = PyLong_AsUnsignedLongLongMask(PyTuple_GetItem(given, 11));
    form->text_count = (int)PyTuple_Size(PyTuple_GetItem(given, 8)) - 1;
    if (PyErr_Occurred())
        return -1;
    for (int place = 0; place < 4; place++)
        if (*places[place] < 0 || *places[place] >= header->count + (place == 3))
            form->text_count = -1;
    if (form->text_count < 0 || form->texts_at + form->text_count > header->count || form->unique_at < 0 ||
        form->unique_at >= form->text_count || form->tags_at < -1 || form->tags_at >= form->text_count ||
        form->queue_count > QUEUES_MAX) {
        PyErr_SetString(PyExc_ValueError, "a form with places that it does not have");
        return -1;
    }
    if (texts_from(PyTuple_GetItem(given, 8), form->properties, form->text_count + 1) < 0)
        return -1;
    return texts_from(PyTuple_GetItem(given, 9), form->answer, ANSWER_GAPS + 1);
}

/* The properties with these texts in their gaps; 0 where they are longer than `most`. */
static size_t fill_properties(const Form *form, const Text *texts, uint8_t *raw, size_t most)
{
    size_t size = form->properties[0].count;
    for (int text = 0; text < form->text_count; text++)
        size += texts[text].count + form->properties[text + 1].count;
    if (size > most)
        return 0;
    memcpy(raw, form->properties[0].bytes, form->properties[0].count);
    raw += form->properties[0].count;
    for (int text = 0; text < form->text_count; text++) {
        memcpy(raw, texts[text].bytes, texts[text].count);
        raw += texts[text].count;
        memcpy(raw, form->properties[text + 1].bytes, form->properties[text + 1].count);
        raw += form->properties[text + 1].count;
    }
    return size;
}

static Text decimal_of(uint64_t number, char *digits, size_t room)
{
    char *at = digits + room;
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    return (Text){(uint8_t *)at, (size_t)(digits + room - at)};
}

/* The frame of the answer to one send. */
static PyObject *answer_of(const Form *form, uint64_t phy_offset, uint64_t queue_offset, Text queue, Text unique,
                           Text opaque)
{
    uint8_t place[PLACE_DIGITS];
    char digits[20];
    write_hex(place, phy_offset, PLACE_DIGITS);
    Text gaps[ANSWER_GAPS];
    gaps[PHY_OFFSET] = (Text){place, PLACE_DIGITS};
    gaps[ANSWERED_QUEUE] = queue;
    gaps[QUEUE_OFFSET] = decimal_of(queue_offset, digits, sizeof digits);
    gaps[UNIQUE] = unique;
    gaps[ANSWERED_OPAQUE] = opaque;
    size_t size = 8 + form->answer[ANSWER_GAPS].count;
    for (int gap = 0; gap < ANSWER_GAPS; gap++)
        size += form->answer[gap].count + gaps[gap].count;
    PyObject *answer = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!answer)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AsString(answer);
    write32(out, (uint32_t)(size - 4));
    write32(out + 4, (uint32_t)(size - 8));
    out += 8;
    for (int gap = 0; gap <= ANSWER_GAPS; gap++) {
        memcpy(out, form->answer[gap].bytes, form->answer[gap].count);
        out += form->answer[gap].count;
        if (gap < ANSWER_GAPS) {
            memcpy(out, gaps[gap].bytes, gaps[gap].count);
            out += gaps[gap].count;
        }
    }
    return answer;
}

/* A send that was cut out of its frame. */
typedef struct {
    Text values[VALUES_MAX];
    Text body;
    size_t end; /* where its frame ends in the chunk */
} Send;

static int cut_send(const uint8_t *data, size_t size, size_t at, const Form *form, size_t body_max, Send *send)
{
    if (size < at || size - at <= 8)
        return 0;
    uint64_t header_bytes = read32(data + at + 4), body_at = at + 8 + header_bytes;
    uint64_t end = (uint64_t)at + 4 + read32(data + at);
    if (header_bytes >> 24 || end > size || body_at >= end || end - body_at > body_max)
        return 0;
    if (!match_header(data + at + 8, data + body_at, &form->header, send->values))
        return 0;
    send->body = (Text){data + body_at, (size_t)(end - body_at)};
    send->end = (size_t)end;
    return number_of(send->values[form->queue_at]) < form->queue_count;
}

static int append_new(PyObject *list, PyObject *item)
{
    int done = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return done;
}

/* The tags code of a send, as a new reference. */
static PyObject *code_of(const Form *form, const Text *texts)
{
    if (form->tags_at < 0)
        return Py_NewRef(form->code);
    Text tag = texts[form->tags_at];
    return PyLong_FromLong((long)(int32_t)java_hash_from(0, tag.bytes, tag.count));
}

/* What one call works with and makes. */
typedef struct {
    Form form;
    Shape shape;
    Send send;
    QueueOffsets offsets;
    uint8_t raw[RAW_MAX];
    size_t properties_max, size_max, room, total;
    uint64_t first; /* where the first record will lie */
    PyObject *queues, *open, *records, *entries, *answers;
} Call;

/* Make the record, entry and answer of the send that was cut; 0: it takes another way, -1 with an error set. */
static int put_send(Call *call)
{
    const Form *form = &call->form;
    const Text *values = call->send.values, *texts = values + form->texts_at;
    Parts parts = {call->send.body.bytes, call->raw, call->send.body.count, 0, 0};
    parts.raw_bytes = fill_properties(form, texts, call->raw, call->properties_max);
    size_t size = record_bytes(&call->shape, &parts);
    if (!parts.raw_bytes || size > call->size_max || call->room < call->total + size + 8)
        return 0;
    uint32_t queue_id = (uint32_t)number_of(values[form->queue_at]);
    uint64_t phy_offset = call->first + call->total, queue_offset;
    if (take_offset(&call->offsets, call->queues, call->open, queue_id, &queue_offset) < 0)
        return -1;
    PyObject *record = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!record)
        return -1;
    write_record((uint8_t *)PyBytes_AsString(record), size, &call->shape, &parts, queue_id, queue_offset, phy_offset,
                 number_of(values[form->born_at]));
    PyObject *queue = PyList_GetItem(call->queues, (Py_ssize_t)queue_id), *code = code_of(form, texts);
    PyObject *entry = code ? Py_BuildValue("OKnN", queue, (unsigned long long)phy_offset, (Py_ssize_t)size, code) : NULL;
    PyObject *answer = answer_of(form, phy_offset, queue_offset, values[form->queue_at], texts[form->unique_at],
                                 values[form->opaque_at]);
    int failed = append_new(call->records, record) < 0;
    failed |= append_new(call->entries, entry) < 0;
    failed |= append_new(call->answers, answer) < 0;
    call->total += size;
    return failed ? -1 : 1;
}

/* put_frames(data, at, form, shape, behind, queues, phy_offset, room, body_max, properties_max, size_max, open) -> (where
 * it ended, bytes of all records, records, entries of their queues, answers): the sends from `at` of a chunk on that
 * match the form, as far as `room` and the limits allow. The queues take their new `next_offset`; those that are None
 * are opened by `open(queue_id)`. */
PyObject *native_put_frames(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    size_t size;
    const uint8_t *data = given == 12 ? bytes_of(args[0], &size) : NULL;
    if (!data || !PyList_Check(args[5]) || PyList_Size(args[5]) > QUEUES_MAX)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "put_frames takes twelve arguments");
    Call *call = PyMem_Malloc(sizeof(Call));
    if (!call)
        return PyErr_NoMemory();
    memset(call->offsets.is_known, 0, sizeof call->offsets.is_known);
    call->offsets.count = 0;
    call->total = 0;
    call->queues = args[5];
    call->open = args[11];
    size_t at = PyLong_AsSize_t(args[1]), body_max = PyLong_AsSize_t(args[8]);
    call->first = PyLong_AsUnsignedLongLong(args[6]);
    call->room = PyLong_AsSize_t(args[7]);
    call->properties_max = PyLong_AsSize_t(args[9]);
    call->size_max = PyLong_AsSize_t(args[10]);
    call->records = PyList_New(0);
    call->entries = PyList_New(0);
    call->answers = PyList_New(0);
    PyObject *result = NULL;
    if (PyErr_Occurred() || form_of(args[2], &call->form) < 0 || shape_of(args[3], args[4], &call->shape) < 0)
        goto done;
    if (call->properties_max > RAW_MAX || call->form.queue_count > (uint64_t)PyList_Size(args[5])) {
        PyErr_SetString(PyExc_ValueError, "longer properties, or more queues, than there can be");
        goto done;
    }
    int taken = 1;
    for (int frames = 0; taken > 0 && frames < FRAMES_MAX; frames++) {
        if (!cut_send(data, size, at, &call->form, body_max, &call->send))
            break;
        taken = put_send(call);
        if (taken > 0)
            at = call->send.end;
    }
    if (taken >= 0 && save_offsets(&call->offsets, call->queues) == 0)
        result = Py_BuildValue("nnOOO", (Py_ssize_t)at, (Py_ssize_t)call->total, call->records, call->entries,
                               call->answers);
done:
    Py_XDECREF(call->records);
    Py_XDECREF(call->entries);
    Py_XDECREF(call->answers);
    PyMem_Free(call);
    return result;
}
