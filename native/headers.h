/* Headers that differ in known values only: the text between these, and what each value may be. */
#ifndef COMETMQ_HEADERS_H
#define COMETMQ_HEADERS_H

#include "native.h"

#define VALUES_MAX 64
enum { QUEUE_ID, NUMBER, OPAQUE, TEXT, SHORT_TEXT };

typedef struct {
    Text literals[VALUES_MAX + 1];
    int kinds[VALUES_MAX];
    int count;
} HeaderForm;

/* Read literals and kinds, tuples; -1 with an error set. Both must outlive the form. */
int header_form_of(PyObject *literals, PyObject *kinds, HeaderForm *form);

/* Match a header; where it does, `values` are what stands between the literals. */
int match_header(const uint8_t *at, const uint8_t *end, const HeaderForm *form, Text *values);

uint64_t number_of(Text digits);

/* Read a tuple of so many pieces of bytes; -1 with an error set. */
int texts_from(PyObject *given, Text *texts, Py_ssize_t count);

#endif
