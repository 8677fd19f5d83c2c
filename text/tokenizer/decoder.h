#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/formats/json_view.h"

namespace qtrain {

/// A step from tokens back to text: rewrites the list of token strings, which are joined at the end.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
  /// By what it may multiply a text.
  virtual double growth() const { return 1; }
};
/// From the `decoder` of a tokenizer.json; null for none (tokens are then joined by spaces). Unknown types are errors.
std::unique_ptr<Decoder> make_decoder(const JsonView& json);

}  // namespace qtrain
