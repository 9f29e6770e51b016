/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer target: any bytes as JSON Lines, with every subset of keys. */
#include <stdlib.h>
#include <string.h>

#include "routes.h"

enum { RECORDS = 8, READS = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pt_route_name requests[RECORDS], phases[RECORDS];
    static int32_t step[RECORDS], layer[RECORDS], width[RECORDS], experts[READS];
    static double weights[READS];
    struct pt_route_columns columns = {
        .request = requests, .phase = phases,     .step = step,
        .layer = layer,      .width = width,      .experts = experts,
        .weights = weights,  .record_capacity = RECORDS, .read_capacity = READS,
    };
    if (size == 0)
        return 0;
    const uint8_t chosen = data[0];
    const struct pt_route_keys keys = {
        .request = chosen & 1 ? "req" : NULL,
        .phase = chosen & 2 ? "phase" : NULL,
        .step = chosen & 4 ? "step" : NULL,
        .layer = "layer",
        .experts = "experts",
        .weights = chosen & 8 ? "weights" : NULL,
    };
    const size_t taken = pt_routes_parse((const char *)data + 1, size - 1, &keys, &columns);
    if (taken > size - 1 || columns.records > RECORDS || columns.reads > READS)
        abort();
    size_t reads = 0;
    for (size_t record = 0; record < columns.records; record++)
        reads += (size_t)width[record];
    if (reads != columns.reads || (taken < size - 1 && taken > 0 && data[taken] != '\n'))
        abort();
    return 0;
}
