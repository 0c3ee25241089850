/* What a model counts for itself. */
#include "model/model.h"

int64_t launches_paired(const iso_model *model); /* task.h has another Device than model.h */

int64_t launches_paired(const iso_model *model)
{
    return model->paired;
}
