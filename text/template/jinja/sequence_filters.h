#pragma once
#include <span>

#include "text/template/jinja/filters.h"

namespace qtrain {

/// Jinja's filters for sequences and mappings, and for all their items by attributes, filters and tests; add new ones
/// to the table.
std::span<const FilterEntry> sequence_filters();

}  // namespace qtrain
