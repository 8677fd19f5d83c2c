#pragma once
#include <memory>
#include <vector>

#include "core/formats/json_view.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/pieces.h"

namespace qtrain {

/// Text split into pieces; merges never cross their borders.
struct PreTokens {
  TrackedText text;
  std::vector<Piece> pieces;
};

/// A step that splits pieces further and may rewrite them.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PreTokens& tokens) const = 0;
};

/// Whether the model can work on bytes: if ByteLevel is the last step, its printable characters need not be produced.
Alphabet alphabet_of(const JsonView& pre_tokenizer);

/// From the `pre_tokenizer` of a tokenizer.json; null for none. With Alphabet::bytes, ByteLevel leaves bytes unchanged.
/// Throws ErrorKind::input for unknown types.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonView& json, Alphabet alphabet);

}  // namespace qtrain
