#pragma once
#include <string_view>

#include "text/template/rendered.h"

namespace qtrain {

/// Marker texts at which answers and questions begin.
struct AnswerMarkers {
  std::string_view response, instruction;  ///< `instruction` may be empty
};

/// The answers: from each response marker to the next instruction marker or the end of the text; without an instruction
/// marker, everything after the last response marker. None if there is no response marker.
TextRanges answers_between(std::string_view text, const AnswerMarkers& markers);

}  // namespace qtrain
