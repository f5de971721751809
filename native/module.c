/* The module `cometmq._native`: loops over many messages. `src/cometmq/native.py` says what stands in for it. */
#include "native.h"

/* As in `src/cometmq/native.py`, which says when it changes. */
#define EDITION 6

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))native_##name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    METHOD(append_entries),
    METHOD(batch_records),
    METHOD(batch_results),
    METHOD(chain_keys),
    METHOD(checksum_by_tables),
    METHOD(cut_pulls),
    METHOD(decode_batch),
#ifndef _WIN32
    METHOD(exchange),
#endif
    METHOD(fill_keys),
    METHOD(gather),
    METHOD(measure_records),
    METHOD(number_keys),
    METHOD(one_record),
    METHOD(pack_messages),
    METHOD(plain_tag_codes),
    METHOD(put_batch),
    METHOD(put_frames),
    METHOD(read_keys),
    METHOD(read_records),
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    const char *asked = getenv("COMETMQ_NATIVE");
    if (asked && !strcmp(asked, "0")) {
        PyErr_SetString(PyExc_ImportError, "COMETMQ_NATIVE=0 asks for the Python form");
        return -1;
    }
    if (PyModule_AddIntConstant(module, "EDITION", EDITION) < 0 || PyModule_AddIntMacro(module, BATCH_MESSAGES_MAX) < 0)
        return -1;
    prepare_checksums();
    return prepare_records() < 0 || prepare_messages() < 0 ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
