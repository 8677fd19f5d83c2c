#pragma once
#include <span>

#include "text/template/jinja/filter_entry.h"

namespace qtrain {

/// Jinja's filters of texts; a new one is a row of its table.
std::span<const FilterEntry> text_filters();

}  // namespace qtrain
