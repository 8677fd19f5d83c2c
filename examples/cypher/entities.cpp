#include "examples/cypher/entities.h"

#include <fmt/format.h>

#include "examples/cypher/names.h"

namespace qtrain::cypher {
namespace {

std::string person(Draw& draw) {
  return fmt::format("{} {}", draw.one_of(kFirstNames), draw.one_of(kLastNames));
}

std::string film(Draw& draw) {
  const std::string_view article = draw.below(3) == 0 ? "The " : "";
  return fmt::format("{}{} {}", article, draw.one_of(kFilmAdjectives), draw.one_of(kFilmNouns));
}

std::string book(Draw& draw) {
  const std::string_view article = draw.below(2) == 0 ? "A" : "The";
  return fmt::format("{} {} of {}", article, draw.one_of(kBookNouns), draw.one_of(kBookSubjects));
}

std::string company(Draw& draw) {
  return fmt::format("{} {}", draw.one_of(kCompanyNames), draw.one_of(kCompanyKinds));
}

}  // namespace

Slots draw_slots(Draw& draw) {
  const bool later = draw.below(2) == 0;
  return {
      {"person", person(draw)},
      {"film", film(draw)},
      {"book", book(draw)},
      {"company", company(draw)},
      {"city", std::string(draw.one_of(kCities))},
      {"genre", std::string(draw.one_of(kGenres))},
      {"year", std::to_string(1950 + draw.below(74))},
      {"rating", fmt::format("{}.{}", 5 + draw.below(4), draw.below(10))},
      {"pages", std::to_string(100 + 5 * draw.below(181))},
      {"n", std::to_string(2 + draw.below(19))},
      {"side", later ? "after" : "before"},
      {"sign", later ? ">" : "<"},
  };
}

std::string fill(std::string_view text, const Slots& slots) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find('<');
    out += text.substr(0, open);
    if (open == text.npos) break;
    text.remove_prefix(open + 1);
    const std::size_t close = text.find('>');
    const auto slot = close == text.npos ? slots.end() : slots.find(text.substr(0, close));
    if (slot == slots.end()) {
      out += '<';
      continue;
    }
    out += slot->second;
    text.remove_prefix(close + 1);
  }
  return out;
}

}  // namespace qtrain::cypher
