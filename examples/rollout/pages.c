/* The pages of a cache. Each counts who has it; a page whose text is known is had by the list of
 * texts too, until pages run short. */
#include "rollout.h"

#include <stdlib.h>
#include <string.h>

/* What a page holds: its tokens, behind the page that its text follows. */
typedef struct Text {
    bool known;
    int before; /* page; -1: none */
    int32_t *tokens;
    int64_t kept; /* when */
} Text;

struct Pages {
    int page, n;
    int *owners;
    Text *text;
    int64_t clock;
};

Pages *pages_open(int page, int n)
{
    Pages *p = take(1, sizeof *p);
    *p = (Pages){page, n, take((size_t)n, sizeof *p->owners), take((size_t)n, sizeof *p->text), 0};
    return p;
}

static void forget(Pages *p, int page)
{
    free(p->text[page].tokens);
    p->text[page] = (Text){0};
    p->owners[page]--;
}

void pages_close(Pages *p)
{
    for (int i = 0; i < p->n; i++)
        free(p->text[i].tokens);
    free(p->text);
    free(p->owners);
    free(p);
}

/* A page whose text others follow stays as long as they do. */
static bool is_followed(const Pages *p, int page)
{
    for (int i = 0; i < p->n; i++)
        if (p->text[i].known && p->text[i].before == page)
            return true;
    return false;
}

static int oldest_text(const Pages *p, int rank, int ranks)
{
    int oldest = -1;
    for (int i = rank; i < p->n; i += ranks)
        if (p->text[i].known && p->owners[i] == 1 && !is_followed(p, i) &&
            (oldest < 0 || p->text[i].kept < p->text[oldest].kept))
            oldest = i;
    return oldest;
}

int pages_take(Pages *p, int rank, int ranks)
{
    int page = rank;
    while (page < p->n && p->owners[page])
        page += ranks;
    if (page >= p->n) {
        page = oldest_text(p, rank, ranks);
        if (page < 0)
            return -1;
        forget(p, page);
    }
    p->owners[page] = 1;
    return page;
}

void pages_drop(Pages *p, int page)
{
    p->owners[page]--;
}

static int find_text(const Pages *p, int before, const int32_t *tokens)
{
    for (int i = 0; i < p->n; i++)
        if (p->text[i].known && p->text[i].before == before &&
            !memcmp(p->text[i].tokens, tokens, (size_t)p->page * sizeof *tokens))
            return i;
    return -1;
}

int pages_find(Pages *p, const int32_t *tokens, int n, int32_t *table)
{
    int found = 0, before = -1;
    for (; (found + 1) * p->page <= n; found++) {
        before = find_text(p, before, tokens + found * p->page);
        if (before < 0)
            break;
        p->owners[before]++;
        table[found] = before;
    }
    return found;
}

void pages_keep(Pages *p, const int32_t *tokens, int n, const int32_t *table)
{
    int before = -1;
    for (int i = 0; (i + 1) * p->page <= n; i++) {
        int known = find_text(p, before, tokens + i * p->page), page = table[i];
        if (known < 0 && !p->text[page].known) {
            size_t bytes = (size_t)p->page * sizeof *tokens;
            p->text[page] = (Text){true, before, take(1, bytes), ++p->clock};
            memcpy(p->text[page].tokens, tokens + i * p->page, bytes);
            p->owners[page]++;
            known = page;
        }
        if (known < 0)
            return;
        before = known;
    }
}
