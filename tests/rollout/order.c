/* A checkpoint whose tensor has its axes in another order than the op's parameter: of rows of an
 * identity the product is the tensor itself. One with other sizes is refused. */
#include "iso_model.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 16, COLUMNS = 32 };

static void must(iso_status status)
{
    if (!status)
        return;
    fprintf(stderr, "order: %s: %s\n", iso_status_string(status), iso_last_error());
    exit(3);
}

/* Small integers, which bf16 holds. */
static float element(int i)
{
    return (float)(i * 37 % 251);
}

static void write_checkpoint(const char *path, const char *shape)
{
    char header[256];
    FILE *file = fopen(path, "wb");
    uint64_t n = (uint64_t)snprintf(header, sizeof header,
                                    "{\"up\":{\"dtype\":\"BF16\",\"shape\":%s,"
                                    "\"data_offsets\":[0,%d]}}", shape, WIDTH * COLUMNS * 2);
    if (!file)
        exit(3);
    fwrite(&n, sizeof n, 1, file);
    fwrite(header, 1, n, file);
    for (int i = 0; i < WIDTH * COLUMNS; i++) {
        float x = element(i);
        uint32_t bits;
        memcpy(&bits, &x, 4);
        uint16_t half = (uint16_t)(bits >> 16);
        fwrite(&half, sizeof half, 1, file);
    }
    fclose(file);
}

static int differing(iso_model *model)
{
    static uint16_t x[WIDTH][WIDTH];
    static float y[WIDTH * COLUMNS];
    int differ = 0;
    for (int i = 0; i < WIDTH; i++)
        x[i][i] = 0x3F80;
    iso_sequence sequence = {.rows = WIDTH};
    iso_value input = {"x", x, sizeof x}, output = {"y", y, sizeof y};
    must(iso_model_step(model, &(iso_step){.sequences = &sequence, .n_sequences = 1,
                                           .inputs = &input, .n_inputs = 1, .outputs = &output,
                                           .n_outputs = 1}));
    for (int i = 0; i < WIDTH * COLUMNS; i++)
        differ += y[i] != element(i);
    return differ;
}

int main(int argc, char **argv)
{
    iso_module *module;
    iso_model *model;
    if (argc != 3)
        return 2;
    iso_config config = {.size = sizeof config, .device = ISO_CPU, .cpu_threads = 1};
    iso_model_config own = {.size = sizeof own, .weights = argv[2], .layout = "tp1",
                            .max_rows = WIDTH, .max_sequences = 1, .max_position = WIDTH};
    must(iso_module_load(&module, argv[1], &config));
    write_checkpoint(argv[2], "[16,4,8]");
    must(iso_model_load(&model, module, &own));
    int differ = differing(model);
    iso_model_unload(model);
    write_checkpoint(argv[2], "[4,8,16]");
    bool refused = iso_model_load(&model, module, &own) == ISO_BAD_WEIGHT &&
                   strstr(iso_last_error(), "has 4 x 8 x 16 of it, the contract takes 16 x 4 x 8");
    iso_module_unload(module);
    if (!refused)
        printf("order: axes in the parameter's own order: %s\n", iso_last_error());
    printf("order: %d of %d elements differ\n", differ, WIDTH * COLUMNS);
    return differ || !refused;
}
