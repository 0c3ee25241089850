/* A line on standard error about whatever takes more than two seconds.
 * Ownership: a Progress belongs to its starter; texts given are copied. */
#ifndef ISOC_PROGRESS_H
#define ISOC_PROGRESS_H

#include <stdbool.h>

typedef struct Progress Progress;

/* NULL where a thread cannot be had: every call takes NULL. */
Progress *progress_start(void);
/* What is being done now; done and total are shown when total > 0. */
void progress_say(Progress *progress, const char *what, int done, int total);
void progress_stop(Progress *progress);

#endif
