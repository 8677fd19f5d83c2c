#pragma once
#include <span>

#include "text/template/jinja/filter_entry.h"

namespace qtrain {

/// Jinja's filters of numbers; a new one is a row of its table.
std::span<const FilterEntry> number_filters();

}  // namespace qtrain
