/* The files of a folder, one after another, into a fuzzer's entry.
 * Ownership: nothing is kept. */
#ifndef ISOC_TEST_REPLAY_H
#define ISOC_TEST_REPLAY_H

#include <check.h>
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int FuzzEntry(const uint8_t *data, size_t size);

enum { REPLAY_MOST = 1 << 18 };

/* How many files were replayed, of those up to 256 KiB. */
static inline int replay_folder(const char *folder, FuzzEntry *entry)
{
    int n = 0;
    uint8_t *bytes = malloc(REPLAY_MOST);
    DIR *d = opendir(folder);
    ck_assert_msg(bytes && d, "%s cannot be read", folder);
    for (struct dirent *file; (file = readdir(d));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
        FILE *in = file->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!in)
            continue;
        entry(bytes, fread(bytes, 1, REPLAY_MOST, in));
        fclose(in);
        n++;
    }
    closedir(d);
    free(bytes);
    return n;
}

#endif
