#pragma once
#include <string>

namespace qtrain {

/// qtrain(1) in the man macros, made of the command table: what `man ./qtrain.1` shows.
std::string man_page();

}  // namespace qtrain
