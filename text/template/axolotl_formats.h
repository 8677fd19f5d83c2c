#pragma once
#include <span>

#include "text/template/turn_format.h"

namespace qtrain {

/// Those of axolotl's chat_template, as "axolotl_phi_4".
std::span<const TurnFormat> axolotl_formats();

}  // namespace qtrain
