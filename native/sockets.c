/* A request and its answer over a blocking socket, with one release of the interpreter's lock.
 *
 * See `net/send_socket.py`.
 */
#include "native.h"

#ifndef _WIN32
#include <errno.h>
#include <sys/socket.h>

#define ANSWER_BYTES (16 * 1024) /* as `_CHUNK_BYTES` there */

/* Write all, then read once. The bytes read; -1 with errno set, and `written` says how far it came. */
static ssize_t write_and_read(int socket, const char *frame, size_t count, size_t *written, char *answer)
{
    while (*written < count) {
        ssize_t sent = send(socket, frame + *written, count - *written, MSG_NOSIGNAL);
        if (sent < 0)
            return -1;
        *written += (size_t)sent;
    }
    return recv(socket, answer, ANSWER_BYTES, 0);
}

/* exchange(socket, frame) -> the first bytes of what comes then, none at the end of the connection. `socket` is the
 * number of a blocking one. Raises OSError, of which BlockingIOError after the time that the socket waits at most, and
 * what the handler of a signal raises. */
PyObject *native_exchange(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    char answer[ANSWER_BYTES], *frame;
    Py_ssize_t count;
    if (given != 2)
        return PyErr_Format(PyExc_TypeError, "exchange takes a number and bytes");
    int socket = (int)PyLong_AsLong(args[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &frame, &count) < 0)
        return NULL;
    size_t written = 0;
    ssize_t found;
    do {
        Py_BEGIN_ALLOW_THREADS
        found = write_and_read(socket, frame, (size_t)count, &written, answer);
        Py_END_ALLOW_THREADS
        if (found < 0 && errno != EINTR)
            return PyErr_SetFromErrno(PyExc_OSError);
        if (found < 0 && PyErr_CheckSignals() < 0)
            return NULL;
    } while (found < 0);
    return PyBytes_FromStringAndSize(answer, found);
}
#endif
