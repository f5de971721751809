/* Java's hash of ASCII, and the value of a property. */
#include "native.h"

uint32_t java_hash_from(uint32_t value, const uint8_t *bytes, size_t count)
{
    for (; count >= 4; bytes += 4, count -= 4)
        value = value * 923521u + bytes[0] * 29791u + bytes[1] * 961u + bytes[2] * 31u + bytes[3];
    while (count--)
        value = value * 31u + *bytes++;
    return value;
}

int is_ascii(const uint8_t *bytes, size_t count)
{
    uint8_t all = 0;
    for (size_t at = 0; at < count; at++)
        all |= bytes[at];
    return all < 0x80;
}

void find_properties(const uint8_t *raw, size_t count, const Text *keys, Text *found, int wanted)
{
    memset(found, 0, (size_t)wanted * sizeof *found);
    for (size_t at = 0; at < count;) { /* at: where a pair begins */
        const uint8_t *end = memchr(raw + at, 2, count - at);
        size_t pair_end = end ? (size_t)(end - raw) : count;
        for (int one = 0; one < wanted; one++) {
            size_t value_at = at + keys[one].count + 1;
            if (pair_end > value_at && raw[value_at - 1] == 1 && !memcmp(raw + at, keys[one].bytes, keys[one].count))
                found[one] = (Text){raw + value_at, pair_end - value_at};
        }
        at = pair_end + 1;
    }
}

Text find_property(const uint8_t *raw, size_t count, const char *key, size_t key_count)
{
    const Text wanted = {(const uint8_t *)key, key_count};
    Text found;
    find_properties(raw, count, &wanted, &found, 1);
    return found;
}

const uint8_t *bytes_of(PyObject *object, size_t *count)
{
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(object, &bytes, &size) < 0)
        return NULL;
    *count = (size_t)size;
    return (const uint8_t *)bytes;
}
