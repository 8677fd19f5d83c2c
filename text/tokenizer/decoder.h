#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/formats/json_view.h"

namespace qtrain {

/// A decoding step from tokens to text: rewrites the list of token strings, which are finally concatenated.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
  /// Factor by which it may lengthen a text.
  virtual double growth() const { return 1; }
};
/// From the `decoder` of a tokenizer.json; null for none (tokens are then joined by spaces). Throws for unknown types.
std::unique_ptr<Decoder> make_decoder(const JsonView& json);

}  // namespace qtrain
