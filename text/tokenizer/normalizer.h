#pragma once
#include <memory>

#include "core/formats/json_view.h"
#include "text/tokenizer/pieces.h"

namespace qtrain {

/// A step that rewrites text before it is split into pieces.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(TrackedText& text) const = 0;
};
/// From the `normalizer` of a tokenizer.json; null for none. Throws ErrorKind::input for unknown types.
std::unique_ptr<Normalizer> make_normalizer(const JsonView& json);

}  // namespace qtrain
