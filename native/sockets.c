/* A request and its answer over a blocking socket, with one release of the interpreter's lock.
 *
 * See `net/send_socket.py`.
 */
#include "native.h"

#ifndef _WIN32
#include <errno.h>
#include <sys/socket.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* Python ignores SIGPIPE */
#endif

#define ANSWER_BYTES (16 * 1024) /* as `_CHUNK_BYTES` there */

/* Write what the socket takes at once and, where that is all, read once. The bytes read; -1 with errno set otherwise:
 * EAGAIN with `written` below `count` where it did not take all. */
static ssize_t write_and_read(int socket, const char *frame, size_t count, size_t *written, char *answer)
{
    ssize_t sent = send(socket, frame, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
        return -1;
    *written = (size_t)sent;
    if (*written == count)
        return recv(socket, answer, ANSWER_BYTES, 0);
    errno = EAGAIN;
    return -1;
}

/* exchange(socket, frame) -> the first bytes of what comes then, none at the end of the connection; or a number, how many
 * bytes of the frame were written, where the socket did not take all at once or a signal ended the wait: the caller goes
 * on, within its time. `socket` is the number of a blocking one. Raises OSError, of which BlockingIOError after the time
 * that the socket waits at most, and what the handler of a signal raises. */
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
    Py_BEGIN_ALLOW_THREADS
    found = write_and_read(socket, frame, (size_t)count, &written, answer);
    Py_END_ALLOW_THREADS
    if (found >= 0)
        return PyBytes_FromStringAndSize(answer, found);
    int is_full = (errno == EAGAIN || errno == EWOULDBLOCK) && written < (size_t)count;
    if (errno != EINTR && !is_full)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyErr_CheckSignals() < 0 ? NULL : PyLong_FromSize_t(written);
}
#endif
