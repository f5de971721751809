/* zlib's CRC-32, sixteen bytes a step: the tables say what each of the sixteen adds to what follows. */
#include "native.h"

#define POLYNOMIAL 0xEDB88320u
#define STEP 16

static uint32_t tables[STEP][256];

void prepare_checksums(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ POLYNOMIAL : value >> 1;
        tables[0][byte] = value;
    }
    for (int behind = 1; behind < STEP; behind++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = tables[behind - 1][byte];
            tables[behind][byte] = before >> 8 ^ tables[0][before & 0xFF];
        }
}

uint32_t checksum(const uint8_t *bytes, size_t count)
{
    uint32_t value = 0xFFFFFFFFu;
    while (count >= STEP) {
        uint8_t step[STEP];
        memcpy(step, bytes, STEP);
        step[0] ^= (uint8_t)value;
        step[1] ^= (uint8_t)(value >> 8);
        step[2] ^= (uint8_t)(value >> 16);
        step[3] ^= (uint8_t)(value >> 24);
        value = 0;
        for (int at = 0; at < STEP; at++)
            value ^= tables[STEP - 1 - at][step[at]];
        bytes += STEP;
        count -= STEP;
    }
    while (count--)
        value = value >> 8 ^ tables[0][(value ^ *bytes++) & 0xFF];
    return ~value;
}
