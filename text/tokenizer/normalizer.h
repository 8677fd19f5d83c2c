#pragma once
#include <memory>

#include "core/formats/json_view.h"
#include "text/tokenizer/pieces.h"

namespace qtrain {

/// A step that rewrites text before it is cut into pieces.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(TrackedText& text) const = 0;
};
/// From the `normalizer` of a tokenizer.json; null for none. Unknown types are input errors.
std::unique_ptr<Normalizer> make_normalizer(const JsonView& json);

}  // namespace qtrain
