#pragma once
#include <span>

#include "text/template/jinja/filter_entry.h"

namespace qtrain {

/// Jinja's text filters; add new ones to the table.
std::span<const FilterEntry> text_filters();

}  // namespace qtrain
