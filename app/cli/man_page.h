#pragma once
#include <string>

namespace qtrain {

/// The man page qtrain(1) in man macros, generated from the command table.
std::string man_page();

}  // namespace qtrain
