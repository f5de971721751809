/* The load generator: keeps W requests outstanding on each of C connections from one thread.
 *
 * Sends are SEND_MESSAGE_V2 (310) with a JSON header as a Java client writes it: a fresh UNIQ_KEY, born
 * time and opaque each, TAGS, WAIT, and with --keys 1 a fresh KEYS as well. Pulls are PULL_MESSAGE (11)
 * of up to --pull records, no waiting; at the end of a queue they begin anew. Every answer is matched by
 * its opaque and its code looked at. With --rate R they leave in bursts, one a millisecond, R a second in
 * all, as far as the windows have room; --queues N instead of eight (those of
 * them whose numbers have as many digits as the last one's). --speak redis or nats sends the same messages to Redis (XADD) or NATS
 * JetStream (HPUB with a reply subject). After the warm-up it counts for --seconds and prints one JSON line:
 * requests, messages, errors, latency percentiles, its own CPU and the server's (all threads).
 */
#include "frames.h"
#include <dirent.h>

enum { BUFFER = 1 << 21, FRAME = 1 << 23, QUEUES = 8, QUEUES_MAX = 100000, SUB = 64, BUCKETS = 64 * SUB };

struct slot {
    uint64_t sent_ns;
    uint32_t opaque;
    int queue;
};
struct connection {
    int fd, waiting;            /* waiting: the socket took less than we had */
    int number, oldest, asked;  /* Redis answers in order: the slots asked, in a ring */
    size_t filled, out_at, out_end;
    uint8_t *in, *out;
    struct slot *slots;
    int *order;
};
struct field { size_t at, width; }; /* where a changing value stands in the template */

static int port, connections = 1, window = 1, body_bytes = 128, pull, keys, cpu = -1, server_pid, queues = QUEUES, first_queue;
static double seconds = 1.2, warm = 0.4, rate;
static const char *topic = "bench";
enum protocol { ROCKETMQ, REDIS, NATS };
static enum protocol speak = ROCKETMQ;

static uint8_t template[FRAME];
static size_t template_bytes;
static struct field queue_field, born_field, unique_field, key_field, opaque_field, offset_field, inbox_field;
static uint64_t histogram[BUCKETS], requests, messages, errors, unmatched, serial;
static uint32_t generation;
static uint64_t offsets[QUEUES_MAX];
static long first_error;
static int counting, stopping;
static struct { struct connection *c; int slot; } *resting; /* with --rate: what may be asked when it is due */
static int rests;
static uint64_t due_ns;

static uint64_t now_ns(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Nanoseconds every thread of the server has run, from the scheduler. */
static uint64_t server_ns(void) {
    char path[300];
    snprintf(path, sizeof path, "/proc/%d/task", server_pid);
    DIR *tasks = server_pid ? opendir(path) : NULL;
    if (!tasks) return 0;
    uint64_t sum = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/schedstat", server_pid, task->d_name);
        FILE *file = fopen(path, "r");
        unsigned long long ran = 0;
        if (file && fscanf(file, "%llu", &ran) == 1) sum += ran;
        if (file) fclose(file);
    }
    closedir(tasks);
    return sum;
}

/* Log-linear: 64 steps to each power of two, so a percentile is right within 1.6 %. */
static int bucket_of(uint64_t ns) {
    if (ns < SUB) return ns;
    int power = 63 - __builtin_clzll(ns) - 6;
    int bucket = (power + 1) * SUB + (int)((ns >> power) - SUB);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static double percentile_ms(double share) {
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < BUCKETS; i++) total += histogram[i];
    for (int i = 0; i < BUCKETS; i++)
        if ((seen += histogram[i]) && seen >= share * total) {
            int power = i / SUB - 1;
            return (power < 0 ? i : (double)((uint64_t)(SUB + i % SUB) << power)) / 1e6;
        }
    return 0;
}

static char *mark(char *at, struct field *field, size_t width) {
    field->at = (uint8_t *)at - template, field->width = width;
    memset(at, '0', width);
    return at + width;
}

static size_t digits_of(int number) {
    return snprintf(NULL, 0, "%d", number);
}

static void make_template(void) {
    char *start = (char *)template + 8, *at = start;
    if (pull) {
        at += sprintf(at, "{\"code\":11,\"extFields\":{\"commitOffset\":\"0\",\"consumerGroup\":\"bench\","
                          "\"expressionType\":\"TAG\",\"maxMsgNums\":\"%d\",\"queueId\":\"", pull);
        at = mark(at, &queue_field, digits_of(queues - 1));
        at += sprintf(at, "\",\"queueOffset\":\"");
        at = mark(at, &offset_field, 10);
        at += sprintf(at, "\",\"subVersion\":\"0\",\"subscription\":\"*\",\"suspendTimeoutMillis\":\"0\","
                          "\"sysFlag\":\"4\",\"topic\":\"%s\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":", topic);
    } else {
        at += sprintf(at, "{\"code\":310,\"extFields\":{\"a\":\"bench\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"%d\",\"e\":\"",
                      topic, queues);
        at = mark(at, &queue_field, digits_of(queues - 1));
        at += sprintf(at, "\",\"f\":\"0\",\"g\":\"");
        at = mark(at, &born_field, 13);
        at += sprintf(at, "\",\"h\":\"0\",\"i\":\"UNIQ_KEY\\u0001AC1100021F9018B4AAC2");
        at = mark(at, &unique_field, 12);
        if (keys) {
            at += sprintf(at, "\\u0002KEYS\\u0001order-");
            at = mark(at, &key_field, 10);
        }
        at += sprintf(at, "\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\","
                          "\"n\":\"broker-a\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":");
    }
    at = mark(at, &opaque_field, 8);
    at += sprintf(at, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}");
    size_t header = at - start, body = pull ? 0 : body_bytes;
    for (size_t i = 0; i < body; i++) at[i] = 'a' + i % 26;
    put_be32(template, 4 + header + body);
    put_be32(template + 4, header);
    template_bytes = 8 + header + body;
}

static char *put_body(char *at) {
    for (int i = 0; i < body_bytes; i++) *at++ = 'a' + i % 26;
    return at;
}

/* XADD of a body, a UNIQ_KEY, KEYS and TAGS to one of eight streams. */
static void make_redis_template(void) {
    char *at = (char *)template;
    at += sprintf(at, "*%d\r\n$4\r\nXADD\r\n$%zu\r\n%s:", keys ? 11 : 9, strlen(topic) + 2, topic);
    at = mark(at, &queue_field, 1);
    at += sprintf(at, "\r\n$1\r\n*\r\n$8\r\nUNIQ_KEY\r\n$32\r\nAC1100021F9018B4AAC2");
    at = mark(at, &unique_field, 12);
    if (keys) {
        at += sprintf(at, "\r\n$4\r\nKEYS\r\n$16\r\norder-");
        at = mark(at, &key_field, 10);
    }
    at += sprintf(at, "\r\n$4\r\nTAGS\r\n$4\r\nTagA\r\n$4\r\nbody\r\n$%d\r\n", body_bytes);
    at = put_body(at);
    at += sprintf(at, "\r\n");
    template_bytes = at - (char *)template;
}

/* HPUB with a UNIQ_KEY, KEYS and TAGS as headers to one of eight subjects of a stream. */
static void make_nats_template(void) {
    static const char head[] = "NATS/1.0\r\nUNIQ_KEY: AC1100021F9018B4AAC2";
    int fields = sizeof head - 1 + 12 + (keys ? strlen("\r\nKEYS: order-") + 10 : 0) + strlen("\r\nTAGS: TagA\r\n\r\n");
    char *at = (char *)template;
    at += sprintf(at, "HPUB %s.", topic);
    at = mark(at, &queue_field, 1);
    at += sprintf(at, " i%d-", getpid());
    at = mark(at, &inbox_field, 4);
    *at++ = '.';
    at = mark(at, &opaque_field, 8);
    at += sprintf(at, " %d %d\r\n%s", fields, fields + body_bytes, head);
    at = mark(at, &unique_field, 12);
    if (keys) {
        at += sprintf(at, "\r\nKEYS: order-");
        at = mark(at, &key_field, 10);
    }
    at = put_body(at + sprintf(at, "\r\nTAGS: TagA\r\n\r\n"));
    at += sprintf(at, "\r\n");
    template_bytes = at - (char *)template;
}

static void put_number(uint8_t *frame, struct field field, uint64_t value, int base) {
    for (size_t i = field.width; i--; value /= base) frame[field.at + i] = "0123456789ABCDEF"[value % base];
}

static void ask(struct connection *c, int slot, uint64_t now, uint64_t born_ms) {
    uint8_t *frame = c->out + c->out_end;
    memcpy(frame, template, template_bytes);
    c->out_end += template_bytes;
    struct slot *s = &c->slots[slot];
    serial++;
    s->queue = first_queue + serial % (queues - first_queue);
    s->sent_ns = now;
    s->opaque = 10000000 + (generation++ % 80000) * 1024 + slot; /* always eight digits */
    put_number(frame, queue_field, s->queue, 10);
    put_number(frame, opaque_field, s->opaque, 10);
    put_number(frame, inbox_field, c->number, 10);
    c->order[c->asked++ % window] = slot;
    if (pull) {
        put_number(frame, offset_field, offsets[s->queue], 10);
        offsets[s->queue] += pull; /* the next pull of this queue leaves before this one is answered */
    } else {
        put_number(frame, born_field, born_ms, 10);
        put_number(frame, unique_field, serial, 16);
        if (keys) put_number(frame, key_field, serial, 10);
    }
}

static uint64_t records_in(const uint8_t *body, size_t length) {
    uint64_t count = 0;
    for (size_t at = 0; at + 4 <= length; count++) {
        uint32_t size = be32(body + at);
        if (size < 4 || at + size > length) return 0;
        at += size;
    }
    return count;
}

static void answered(struct connection *c, int slot, long code, uint64_t found, uint64_t now, uint64_t born_ms) {
    int end_of_queue = pull && (code >= 19 && code <= 21);
    if (end_of_queue) offsets[c->slots[slot].queue] = 0;
    if (counting) {
        requests++;
        if (code == 0) messages += found;
        else if (!end_of_queue && !errors++) first_error = code;
        histogram[bucket_of(now - c->slots[slot].sent_ns)]++;
    }
    c->slots[slot].opaque = 0;
    if (stopping) return;
    if (rate) resting[rests].c = c, resting[rests++].slot = slot;
    else ask(c, slot, now, born_ms);
}

/* The slot that asked with this opaque; -1, and counted, where none did. */
static int slot_of(struct connection *c, long opaque) {
    int slot = (opaque - 10000000) & 1023;
    if (opaque >= 10000000 && slot < window && c->slots[slot].opaque == opaque) return slot;
    unmatched++;
    return -1;
}

/* Each of these takes one whole answer from the bytes at hand: how long it is, 0 while it is not all there. */
static size_t take_rocketmq(struct connection *c, const uint8_t *frame, size_t left, uint64_t now, uint64_t born_ms) {
    if (left < 8) return 0;
    uint32_t total = be32(frame), header = be32(frame + 4) & 0xFFFFFF;
    if (total + 4 > BUFFER) { fprintf(stderr, "bench: an answer of %u bytes\n", total); exit(1); }
    if (left < total + 4) return 0;
    long opaque = NUMBER_OF(frame + 8, header, "\"opaque\":"), code = NUMBER_OF(frame + 8, header, "\"code\":");
    int slot = slot_of(c, opaque);
    uint64_t found = pull ? records_in(frame + 8 + header, total - 4 - header) : 1;
    if (slot >= 0) answered(c, slot, code, found, now, born_ms);
    return total + 4;
}

static size_t take_redis(struct connection *c, const uint8_t *answer, size_t left, uint64_t now, uint64_t born_ms) {
    const uint8_t *end = memchr(answer, '\n', left);
    if (!end) return 0;
    size_t length = end + 1 - answer;
    if (*answer == '$' && (length += atoi((const char *)answer + 1) + 2) > left) return 0;
    int slot = c->order[c->oldest++ % window];
    answered(c, slot, *answer == '-', 1, now, born_ms);
    return length;
}

static size_t take_nats(struct connection *c, const uint8_t *answer, size_t left, uint64_t now, uint64_t born_ms) {
    const uint8_t *end = memchr(answer, '\n', left);
    if (!end) return 0;
    size_t length = end + 1 - answer;
    if (!memcmp(answer, "PING", 4)) send(c->fd, "PONG\r\n", 6, MSG_NOSIGNAL);
    if (!memcmp(answer, "-ERR", 4)) { fprintf(stderr, "bench: %.*s", (int)length, answer); exit(1); }
    if (memcmp(answer, "MSG ", 4)) return length;
    const uint8_t *size = memrchr(answer, ' ', length), *dot = memchr(answer, '.', length);
    size_t body = atoi((const char *)size + 1);
    if (length + body + 2 > left) return 0;
    int slot = slot_of(c, atol((const char *)dot + 1));
    if (slot >= 0) answered(c, slot, !!memmem(end, body, "\"error\"", 7), 1, now, born_ms);
    return length + body + 2;
}

static void flush_out(struct connection *c, int poll) {
    while (c->out_at < c->out_end) {
        ssize_t done = send(c->fd, c->out + c->out_at, c->out_end - c->out_at, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno != EAGAIN) die("the server closed a connection");
        if (done < 0) break;
        c->out_at += done;
    }
    int waiting = c->out_at < c->out_end;
    memmove(c->out, c->out + c->out_at, c->out_end - c->out_at);
    c->out_end -= c->out_at, c->out_at = 0;
    if (waiting != c->waiting) {
        struct epoll_event event = {.events = EPOLLIN | (waiting ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(poll, EPOLL_CTL_MOD, c->fd, &event);
        c->waiting = waiting;
    }
}

static void receive(struct connection *c) {
    ssize_t got = recv(c->fd, c->in + c->filled, BUFFER - c->filled, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) die("the server closed a connection");
    c->filled += got;
    uint64_t now = now_ns(CLOCK_MONOTONIC), born_ms = now_ns(CLOCK_REALTIME_COARSE) / 1000000;
    size_t at = 0, taken;
    size_t (*take)(struct connection *, const uint8_t *, size_t, uint64_t, uint64_t) =
        speak == REDIS ? take_redis : speak == NATS ? take_nats : take_rocketmq;
    while (at < c->filled && (taken = take(c, c->in + at, c->filled - at, now, born_ms))) at += taken;
    memmove(c->in, c->in + at, c->filled -= at);
}

/* NATS: headers on, and a subscription of the inbox to which the acknowledgements of this connection go. */
static void greet(struct connection *c) {
    char words[200];
    int length = sprintf(words, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}\r\nSUB i%d-%04d.* 1\r\n",
                         getpid(), c->number);
    if (send(c->fd, words, length, MSG_NOSIGNAL) != length) die("cannot greet");
}

static struct connection *open_connection(int poll, int number) {
    struct connection *c = calloc(1, sizeof *c);
    c->number = number;
    c->order = calloc(window, sizeof *c->order);
    c->in = malloc(BUFFER);
    c->out = malloc(window * template_bytes); /* never more than the window is on its way */
    c->slots = calloc(window, sizeof *c->slots);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(c->fd, (void *)&address, sizeof address)) die("cannot connect");
    no_delay(c->fd);
    if (speak == NATS) greet(c);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
    return c;
}

/* Ask as many as are due; what the server was too slow for is not made up for. */
static void ask_due(int poll, uint64_t now) {
    uint64_t born_ms = now_ns(CLOCK_REALTIME_COARSE) / 1000000;
    for (; rests && due_ns <= now; due_ns += 1e9 / rate) {
        struct connection *c = resting[--rests].c;
        ask(c, resting[rests].slot, now, born_ms);
        flush_out(c, poll);
    }
    if (!rests && due_ns < now) due_ns = now;
}

static void run_until(int poll, uint64_t end_ns) {
    struct epoll_event ready[256];
    for (uint64_t now; (now = now_ns(CLOCK_MONOTONIC)) < end_ns;) {
        if (rate && !stopping) ask_due(poll, now);
        int count = epoll_wait(poll, ready, 256, rate ? 1 : (end_ns - now) / 1000000 + 1);
        for (int i = 0; i < count; i++) {
            struct connection *c = ready[i].data.ptr;
            if (ready[i].events & ~EPOLLOUT) receive(c);
            flush_out(c, poll);
        }
    }
}

static void read_arguments(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i] + 2, *value = argv[i + 1];
        if (!strcmp(name, "port")) port = atoi(value);
        else if (!strcmp(name, "connections")) connections = atoi(value);
        else if (!strcmp(name, "window")) window = atoi(value);
        else if (!strcmp(name, "body")) body_bytes = atoi(value);
        else if (!strcmp(name, "pull")) pull = atoi(value);
        else if (!strcmp(name, "keys")) keys = atoi(value);
        else if (!strcmp(name, "queues")) queues = atoi(value);
        else if (!strcmp(name, "cpu")) cpu = atoi(value);
        else if (!strcmp(name, "server-pid")) server_pid = atoi(value);
        else if (!strcmp(name, "seconds")) seconds = atof(value);
        else if (!strcmp(name, "warm")) warm = atof(value);
        else if (!strcmp(name, "rate")) rate = atof(value);
        else if (!strcmp(name, "topic")) topic = value;
        else if (!strcmp(name, "speak")) speak = !strcmp(value, "redis") ? REDIS : !strcmp(value, "nats") ? NATS : ROCKETMQ;
        else { fprintf(stderr, "bench: unknown option %s\n", argv[i]); exit(2); }
    }
    if (queues < 1 || queues > (speak == ROCKETMQ ? QUEUES_MAX : QUEUES)) {
        fprintf(stderr, "bench: --queues is 1 to %d, to Redis and NATS at most %d\n", QUEUES_MAX, QUEUES);
        exit(2);
    }
    for (int of_ten = 10; of_ten < queues; of_ten *= 10) first_queue = of_ten;
    if (!port || window < 1 || window > 1024 || body_bytes < 0 || body_bytes > FRAME / 2) {
        fprintf(stderr, "bench: --port is needed, --window is 1 to 1024, --body at most %d\n", FRAME / 2);
        exit(2);
    }
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    pin_to(cpu);
    if (speak == REDIS) make_redis_template();
    else if (speak == NATS) make_nats_template();
    else make_template();
    serial = now_ns(CLOCK_REALTIME) / 1000; /* no two runs share a UNIQ_KEY */
    int poll = epoll_create1(0);
    struct connection **all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) all[i] = open_connection(poll, i);
    resting = calloc((size_t)connections * window, sizeof *resting);
    due_ns = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < connections; i++) {
        uint64_t now = now_ns(CLOCK_MONOTONIC), born_ms = now_ns(CLOCK_REALTIME) / 1000000;
        for (int slot = 0; slot < window; slot++)
            if (rate) resting[rests].c = all[i], resting[rests++].slot = slot;
            else ask(all[i], slot, now, born_ms);
        flush_out(all[i], poll);
    }
    run_until(poll, now_ns(CLOCK_MONOTONIC) + warm * 1e9);
    uint64_t start = now_ns(CLOCK_MONOTONIC), own = now_ns(CLOCK_PROCESS_CPUTIME_ID), server = server_ns();
    counting = 1;
    run_until(poll, start + seconds * 1e9);
    counting = 0;
    uint64_t wall = now_ns(CLOCK_MONOTONIC) - start;
    own = now_ns(CLOCK_PROCESS_CPUTIME_ID) - own;
    server = server_ns() - server;
    stopping = 1; /* what is still asked is answered before we leave, so the server sees a clean close */
    run_until(poll, now_ns(CLOCK_MONOTONIC) + 50000000);
    printf("{\"generator\":\"c\",\"requests\":%lu,\"messages\":%lu,\"errors\":%lu,\"first_error\":%ld,"
           "\"unmatched\":%lu,\"wall_s\":%.4f,\"own_cpu_s\":%.4f,\"server_cpu_s\":%.4f,"
           "\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"p999_ms\":%.4f,\"frame_bytes\":%zu}\n",
           requests, messages, errors, first_error, unmatched, wall / 1e9, own / 1e9, server / 1e9,
           percentile_ms(0.50), percentile_ms(0.99), percentile_ms(0.999), template_bytes);
    return 0;
}
