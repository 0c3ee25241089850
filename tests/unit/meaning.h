/* A contract held in memory, and its meaning: the test fails where either is refused.
 * Ownership: everything lives in the Front's arena until front_close. */
#ifndef ISOC_TEST_MEANING_H
#define ISOC_TEST_MEANING_H

#include <check.h>

#include "dag/dag.h"
#include "front.h"

static inline void meaning_open(Front *f, const char *text, Contract *contract, Dag *dag)
{
    front_open(f, text);
    ck_assert_msg(front_parse(f) && check_contract(&f->ast, contract, f->arena, &f->diags) &&
                      dag_build(contract, dag, f->arena, &f->diags),
                  "%s", front_text(f));
}

#endif
