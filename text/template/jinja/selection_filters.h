#pragma once
#include <span>

#include "text/template/jinja/filter_entry.h"

namespace qtrain {

/// Jinja's filters of all items of a sequence, by attributes, filters and tests; a new one is a row of its table.
std::span<const FilterEntry> selection_filters();

}  // namespace qtrain
