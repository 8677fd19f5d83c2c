#pragma once
#include <span>

#include "text/template/jinja/filter_entry.h"

namespace qtrain {

/// Jinja's number filters; add new ones to the table.
std::span<const FilterEntry> number_filters();

}  // namespace qtrain
