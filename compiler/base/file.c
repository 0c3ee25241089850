/* Files, whole or not at all. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *read_all(int fd, Str *bytes, Arena *arena)
{
    enum { LARGEST = 1 << 30 };
    Text text = {.arena = arena};
    char chunk[16384];
    ssize_t n;
    text_add(&text, STR(""));
    while ((n = read(fd, chunk, sizeof chunk)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return strerror(errno);
        if (text.n > LARGEST)
            return "it is larger than a gigabyte";
        text_add(&text, (Str){chunk, (int)n});
    }
    *bytes = text_str(&text);
    return NULL;
}

const char *file_read(const char *path, Str *bytes, Arena *arena)
{
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, bytes, arena);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return strerror(errno);
    const char *problem = read_all(fd, bytes, arena);
    close(fd);
    return problem;
}

static const char *write_all(int fd, Str bytes)
{
    for (size_t done = 0; done < (size_t)bytes.n;) {
        ssize_t n = write(fd, bytes.s + done, (size_t)bytes.n - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return strerror(errno);
        done += (size_t)n;
    }
    return NULL;
}

/* A device, a pipe or a terminal cannot be replaced by renaming. */
static bool is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

static const char *write_special(const char *path, Str bytes)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return strerror(errno);
    const char *problem = write_all(fd, bytes);
    if (close(fd) != 0 && !problem)
        problem = strerror(errno);
    return problem;
}

const char *file_writable(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    if (strcmp(path, "-") == 0)
        return NULL;
    if (is_special(path))
        return access(path, W_OK) == 0 ? NULL : strerror(errno);
    int n = slash ? (int)(slash - path) + 1 : 1;
    if (n >= (int)sizeof folder)
        return strerror(ENAMETOOLONG);
    snprintf(folder, sizeof folder, "%.*s", n, slash ? path : ".");
    return access(folder, W_OK | X_OK) == 0 ? NULL : strerror(errno);
}

const char *file_write(const char *path, Str bytes)
{
    if (strcmp(path, "-") == 0)
        return write_all(STDOUT_FILENO, bytes);
    if (is_special(path))
        return write_special(path, bytes);
    char temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof temporary)
        return strerror(ENAMETOOLONG);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return strerror(errno);
    const char *problem = write_all(fd, bytes);
    if (!problem && fsync(fd) != 0)
        problem = strerror(errno);
    if (close(fd) != 0 && !problem)
        problem = strerror(errno);
    if (!problem && rename(temporary, path) != 0)
        problem = strerror(errno);
    if (problem)
        unlink(temporary);
    return problem;
}
