#pragma once
#include <map>
#include <random>
#include <string>
#include <string_view>

namespace qtrain::cypher {

/// Draws integers only: std::mt19937_64 gives the same numbers on every machine, but the standard distributions do not.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  /// Uniform in [0, count).
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(engine_() % count); }
  template <class List>
  auto one_of(const List& list) {
    return list[below(list.size())];
  }

 private:
  std::mt19937_64 engine_;
};

/// The value of each slot of a shape in one row. `side` ("after") and `sign` (">") go together.
using Slots = std::map<std::string, std::string, std::less<>>;
Slots draw_slots(Draw& draw);

/// Replaces every `<slot>` in the text. A `<` that does not begin a slot (an arrow, a comparison) stays.
std::string fill(std::string_view text, const Slots& slots);

}  // namespace qtrain::cypher
