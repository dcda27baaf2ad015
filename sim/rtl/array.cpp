// The multiplier array as a function: what hw/rtl/compute/gemm.py computes, without its pipeline. Called by Verilated code.
//
// Compiled with INP_BITS, WGT_BITS, BATCH, BLOCK_IN, BLOCK_OUT, ROW_TAPS of the configuration.

#include <cstdint>
#include <cstring>

namespace {

// Element `k` of a packed vector of signed elements of BITS bits, a power of two, at most 32.
template <int BITS>
inline int32_t element(const uint32_t* words, unsigned k) {
    if constexpr (BITS == 8) {
        return reinterpret_cast<const int8_t*>(words)[k];
    } else {
        constexpr unsigned PER_WORD = 32 / BITS;
        return static_cast<int32_t>(words[k / PER_WORD] << (32 - BITS - k % PER_WORD * BITS)) >> (32 - BITS);
    }
}

}  // namespace

extern "C" {

// `inp`: an entry and the ROW_TAPS - 1 behind it; `wgt`: an entry; `sums`: 32 bits for each lane. With `rows` products
// with row `row`, to which those of `extra` entries with the rows behind it are added.
void tilewright_array(const uint32_t* inp, const uint32_t* wgt, int rows, int row, int extra, uint32_t* sums) {
    const int group = row / ROW_TAPS * ROW_TAPS;
    for (int b = 0; b < BATCH; b++)
        for (int o = 0; o < BLOCK_OUT; o++) {
            int32_t sum = 0;
            if (!rows)
                for (int i = 0; i < BLOCK_IN; i++)
                    sum += element<INP_BITS>(inp, b * BLOCK_IN + i) * element<WGT_BITS>(wgt, o * BLOCK_IN + i);
            else if (o < BLOCK_IN)
                for (int t = 0; t <= extra; t++)
                    sum += element<INP_BITS>(inp, (t * BATCH + b) * BLOCK_IN + o) *
                           element<WGT_BITS>(wgt, (t ? group + t : row) * BLOCK_OUT + o);
            sums[b * BLOCK_OUT + o] = sum;
        }
}
}
