#pragma once
#include <string_view>

#include "text/template/rendered.h"

namespace qtrain {

/// Words in a text that say where answers begin and where questions do.
struct AnswerMarkers {
  std::string_view response, instruction;  ///< `instruction` may be empty
};

/// What is answered: from behind each response marker to the next instruction marker or the end of the text; without an
/// instruction marker from behind the last response marker. None where there is no response marker.
TextRanges answers_between(std::string_view text, const AnswerMarkers& markers);

}  // namespace qtrain
