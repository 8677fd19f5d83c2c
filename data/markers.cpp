#include "data/markers.h"

#include <algorithm>

namespace qtrain {

TextRanges answers_between(std::string_view text, const AnswerMarkers& markers) {
  if (markers.instruction.empty()) {
    const std::size_t last = text.rfind(markers.response);
    if (last == text.npos) return {};
    return {{last + markers.response.size(), text.size()}};
  }
  TextRanges answers;
  for (std::size_t at = text.find(markers.response); at != text.npos; at = text.find(markers.response, at)) {
    const std::size_t begin = at + markers.response.size();
    const std::size_t end = std::min(text.find(markers.instruction, begin), text.size());
    answers.emplace_back(begin, end);
    at = end;
  }
  return answers;
}

}  // namespace qtrain
