/* Reads gzipped test vectors: lines of blank-separated words.
 * Owns the pipe between open and close. */
#ifndef TESTS_VECTORS_H
#define TESTS_VECTORS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

typedef struct VectorFile {
    FILE *pipe;
} VectorFile;

/* DIR/NAME.txt.gz; false when it is not there. */
static inline bool vectors_open(VectorFile *v, const char *dir, const char *name)
{
    char path[512], command[600];
    snprintf(path, sizeof path, "%s/%s.txt.gz", dir, name);
    if (access(path, R_OK) != 0)
        return false;
    snprintf(command, sizeof command, "gzip -dc '%s'", path);
    v->pipe = popen(command, "r");
    return v->pipe != NULL;
}

static inline bool vectors_words(VectorFile *v, uint32_t *words, int n)
{
    for (int i = 0; i < n; i++)
        if (fscanf(v->pipe, "%x", &words[i]) != 1)
            return false;
    return true;
}

/* A name of at most 63 characters. */
static inline bool vectors_name(VectorFile *v, char name[64])
{
    return fscanf(v->pipe, "%63s", name) == 1;
}

static inline void vectors_close(VectorFile *v) { pclose(v->pipe); }

#endif
