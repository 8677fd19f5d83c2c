#pragma once
#include <span>

#include "text/template/jinja/filter_entry.h"

namespace qtrain {

/// Jinja's filters for sequences and mappings; add new ones to the table.
std::span<const FilterEntry> sequence_filters();

}  // namespace qtrain
