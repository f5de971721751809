/* Records of the commit log: what all of one call share, what each has of its own, and how they are written. */
#ifndef COMETMQ_RECORDS_H
#define COMETMQ_RECORDS_H

#include "native.h"

#define FRONT_BYTES 36
#define SUM_BYTES 20 /* the whole-record checksum as a property */
#define QUEUES_MAX 1024
#define PLACE_DIGITS 16 /* of a phy_offset in offset ids and answers */

/* See `RecordTemplate`. */
typedef struct {
    uint32_t magic, flag;
    const uint8_t *behind; /* what follows `FRONT`, with the born time and the body's size still to come */
    size_t behind_bytes;
    const uint8_t *topic;
    size_t topic_bytes;
    int with_sum;
} Shape;

typedef struct {
    const uint8_t *body, *raw;
    size_t body_bytes, raw_bytes;
    int separator; /* whether one is missing behind the properties, ahead of the checksum */
} Parts;

int shape_of(PyObject *given, PyObject *behind, Shape *shape);
size_t record_bytes(const Shape *shape, const Parts *parts);
void write_record(uint8_t *start, size_t size, const Shape *shape, const Parts *parts, uint32_t queue_id,
                  uint64_t queue_offset, uint64_t phy_offset, uint64_t born_ms);

/* The next offset of each queue of a call, read once and written back once. */
typedef struct {
    uint64_t next[QUEUES_MAX];
    uint8_t is_known[QUEUES_MAX];
    uint16_t known[QUEUES_MAX];
    int count;
} QueueOffsets;

/* Take the next offset of a queue of the list, opened by a call where it is None; -1 with an error set. */
int take_offset(QueueOffsets *offsets, PyObject *queues, PyObject *open, uint32_t queue_id, uint64_t *taken);
int save_offsets(const QueueOffsets *offsets, PyObject *queues);

/* The queue of the list, opened where it is None, as a new reference. */
PyObject *open_queue(PyObject *queues, PyObject *open, uint32_t queue_id);

/* Its next offset, a new reference. */
PyObject *next_offset_of(PyObject *queue);

#endif
