/* Prints the class of each image on standard input: 8 x 8 pixels of float, 0 to 1, as bytes. */
#include <stdio.h>

#include "network.h"

int main(void)
{
    static float image[NETWORK_INPUT_IMAGE], logits[NETWORK_OUTPUT_LOGITS];
    int status = network_open(network_program);
    while (status == 0 && fread(image, sizeof image, 1, stdin) == 1) {
        int best = 0;
        status = network_run(image, logits);
        for (int k = 1; k < NETWORK_OUTPUT_LOGITS; k++)
            if (logits[k] > logits[best])
                best = k;
        if (status == 0)
            printf("%d\n", best);
    }
    return status;
}
