/* How kernels reach the elements of arrays. */
#include "tw_host.h"

int tw_next(struct tw_walk *walk, int32_t operands, int32_t dimensions, const int32_t *row) {
    for (int32_t k = 0; k < dimensions; k++, row += 1 + operands) {
        int32_t more = ++walk->at[k] < row[0];
        for (int32_t j = 0; j < operands; j++) walk->offset[j] += more ? row[1 + j] : -(row[0] - 1) * row[1 + j];
        if (more) return 1;
        walk->at[k] = 0;
    }
    return 0;
}

int64_t tw_load(const void *x, int32_t type, int32_t k) {
    switch (type) {
    case TW_INT8: return ((const int8_t *)x)[k];
    case TW_UINT8: return ((const uint8_t *)x)[k];
    case TW_INT16: return ((const int16_t *)x)[k];
    case TW_INT32: return ((const int32_t *)x)[k];
    default: return ((const int64_t *)x)[k];
    }
}

void tw_store(void *y, int32_t type, int32_t k, int64_t value) {
    switch (type) {
    case TW_INT8: ((int8_t *)y)[k] = (int8_t)value; break;
    case TW_UINT8: ((uint8_t *)y)[k] = (uint8_t)value; break;
    case TW_INT16: ((int16_t *)y)[k] = (int16_t)value; break;
    case TW_INT32: ((int32_t *)y)[k] = (int32_t)value; break;
    default: ((int64_t *)y)[k] = value; break;
    }
}
