#pragma once
#include <span>

#include "text/template/turn_formats.h"

namespace qtrain {

/// The formats of axolotl's chat_template, named like "axolotl_phi_4".
std::span<const TurnFormat> axolotl_formats();

}  // namespace qtrain
