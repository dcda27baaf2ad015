#include "tw_host.h"

int tw_next(struct tw_walk *walk, int32_t operands, const int32_t *plan) {
    const int32_t *row = plan + 1;
    for (int32_t k = 0; k < plan[0]; k++, row += 1 + operands) {
        int32_t more = ++walk->at[k] < row[0];
        for (int32_t j = 0; j < operands; j++) walk->offset[j] += more ? row[1 + j] : -(row[0] - 1) * row[1 + j];
        if (more) return 1;
        walk->at[k] = 0;
    }
    return 0;
}
