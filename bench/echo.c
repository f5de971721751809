/* The bare framed echo: splits frames and answers each with a canned header and the right opaque.
 *
 * It does nothing a broker does, so its rate is the limit of loopback, kernel and generator together.
 * Usage: echo CPU      (-1 = not pinned); prints its port, runs until it is ended or stdin closes.
 */
#include "frames.h"

enum { BUFFER = 1 << 18, CONNECTIONS = 4096 };

struct connection {
    uint8_t in[BUFFER];
    size_t filled;
};
static struct connection *connections[CONNECTIONS];
static uint8_t out[1 << 22];

static const char before[] =
    "{\"code\":0,\"extFields\":{\"queueId\":\"3\",\"TRACE_ON\":\"true\",\"MSG_REGION\":\"DefaultRegion\","
    "\"msgId\":\"7F00000100002A9F0000000012345678\",\"queueOffset\":\"12345678\"},\"flag\":1,"
    "\"language\":\"PYTHON\",\"opaque\":";
static const char after[] = ",\"version\":513}";

static size_t answer(uint8_t *to, const uint8_t *header, size_t length) {
    long opaque = NUMBER_OF(header, length, "\"opaque\":");
    uint8_t *at = to + 8;
    memcpy(at, before, sizeof before - 1), at += sizeof before - 1;
    char digits[24];
    int count = 0;
    do digits[count++] = '0' + opaque % 10; while (opaque /= 10);
    while (count) *at++ = digits[--count];
    memcpy(at, after, sizeof after - 1), at += sizeof after - 1;
    put_be32(to + 4, at - to - 8);
    put_be32(to, at - to - 4);
    return at - to;
}

/* Blocking the only thread until the peer reads is fine: the generator reads whatever it asked for. */
static int write_all(int fd, const uint8_t *from, size_t count) {
    while (count) {
        ssize_t done = send(fd, from, count, MSG_NOSIGNAL);
        if (done < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (done <= 0) return -1;
        from += done, count -= done;
    }
    return 0;
}

static int serve(int fd) {
    struct connection *c = connections[fd];
    ssize_t got = recv(fd, c->in + c->filled, BUFFER - c->filled, 0);
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    c->filled += got;
    size_t at = 0, answers = 0;
    while (c->filled - at >= 8) {
        uint32_t total = be32(c->in + at), header = be32(c->in + at + 4) & 0xFFFFFF;
        if (total + 4 > BUFFER || header + 4 > total) return -1;
        if (c->filled - at < total + 4) break;
        answers += answer(out + answers, c->in + at + 8, header);
        at += total + 4;
    }
    memmove(c->in, c->in + at, c->filled -= at);
    return answers ? write_all(fd, out, answers) : 0;
}

int main(int argc, char **argv) {
    pin_to(argc > 1 ? atoi(argv[1]) : -1);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (bind(listener, (void *)&address, length) || listen(listener, 1024)) die("cannot listen");
    getsockname(listener, (void *)&address, &length);
    printf("%d\n", ntohs(address.sin_port)), fflush(stdout);

    int poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, ready[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = STDIN_FILENO;
    epoll_ctl(poll, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    for (;;) {
        int count = epoll_wait(poll, ready, 256, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == STDIN_FILENO) return 0;
            if (fd == listener) {
                int peer = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (peer < 0) continue;
                if (peer >= CONNECTIONS) { close(peer); continue; }
                no_delay(peer);
                if (!connections[peer] && !(connections[peer] = malloc(sizeof **connections))) die("memory");
                connections[peer]->filled = 0;
                event = (struct epoll_event){.events = EPOLLIN, .data.fd = peer};
                epoll_ctl(poll, EPOLL_CTL_ADD, peer, &event);
            } else if (serve(fd)) {
                close(fd);
            }
        }
    }
}
