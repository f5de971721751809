/* What the load generator and the echo server share: RocketMQ's frame, cut and put together.
 *
 *   total:u32 | serialize type:u8 | header length:u24 | header | body     (total does not count itself)
 */
#ifndef BENCH_FRAMES_H
#define BENCH_FRAMES_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline uint32_t be32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline void put_be32(uint8_t *at, uint32_t value) {
    at[0] = value >> 24, at[1] = value >> 16, at[2] = value >> 8, at[3] = value;
}

static inline void die(const char *what) {
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* The decimal number behind `"name":` in a JSON header, -1 where there is none. */
static inline long number_of(const uint8_t *header, size_t length, const char *name, size_t name_length) {
    const uint8_t *at = memmem(header, length, name, name_length);
    if (!at) return -1;
    at += name_length;
    long value = 0;
    while (at < header + length && *at >= '0' && *at <= '9') value = value * 10 + (*at++ - '0');
    return value;
}
#define NUMBER_OF(header, length, name) number_of(header, length, name, sizeof(name) - 1)

static inline void pin_to(int cpu) {
    if (cpu < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) die("cannot pin to the core");
}

static inline void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

#endif
