/* One rank's step fails at once and the others wait for it: linked with --wrap=iso_model_step. */
#include "iso_model.h"

#include <stdatomic.h>

iso_status __real_iso_model_step(iso_model *model, const iso_step *step);
iso_status __wrap_iso_model_step(iso_model *model, const iso_step *step);

iso_status __wrap_iso_model_step(iso_model *model, const iso_step *step)
{
    static atomic_int calls;
    if (atomic_fetch_add(&calls, 1) == 0)
        return ISO_DRIVER;
    return __real_iso_model_step(model, step);
}
