#pragma once
#include <span>

#include "text/template/jinja/filter_entry.h"

namespace qtrain {

/// Jinja's filters of sequences and mappings; a new one is a row of its table.
std::span<const FilterEntry> sequence_filters();

}  // namespace qtrain
