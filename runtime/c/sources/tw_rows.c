#include "tw_host.h"

#define INTEGER_BITS 12 /* of the sum of exponentials */

void tw_softmax(const int8_t *x, void *y, int32_t rows, int32_t size, int32_t inner, const int32_t *exponentials,
                int32_t bits) {
    int32_t least = -(1 << (bits - 1));
    for (int32_t row = 0; row < rows * inner; row++) {
        int32_t start = row / inner * size * inner + row % inner, end = start + size * inner, largest = -128;
        int64_t total = 0;
        for (int32_t k = start; k < end; k += inner) largest = x[k] > largest ? x[k] : largest;
        for (int32_t k = start; k < end; k += inner) {
            int32_t e = exponentials[largest - x[k]];
            if (e >= 0) total += tw_divide_by_power(e, INTEGER_BITS);
        }
        int32_t headroom = 32 - tw_bits((uint64_t)total);
        int64_t inverse = tw_reciprocal((total << headroom) - ((int64_t)1 << 31), 31);
        for (int32_t k = start; k < end; k += inner) {
            int32_t e = exponentials[largest - x[k]];
            int64_t share = tw_divide_by_power(tw_high_product(inverse, e, 31), INTEGER_BITS + 31 - bits - headroom);
            int64_t found = e >= 0 ? tw_clamp(share + least, least, -least - 1) : least;
            if (bits == 8)
                ((int8_t *)y)[k] = (int8_t)found;
            else
                ((int16_t *)y)[k] = (int16_t)found;
        }
    }
}
