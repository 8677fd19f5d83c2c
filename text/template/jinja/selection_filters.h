#pragma once
#include <span>

#include "text/template/jinja/filter_entry.h"

namespace qtrain {

/// Jinja's filters over all items of a sequence, by attributes, filters and tests; add new ones to the table.
std::span<const FilterEntry> selection_filters();

}  // namespace qtrain
