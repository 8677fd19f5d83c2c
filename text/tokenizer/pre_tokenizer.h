#pragma once
#include <memory>
#include <vector>

#include "core/formats/json_view.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/pieces.h"

namespace qtrain {

/// Text cut into pieces; merges never cross their borders.
struct PreTokens {
  TrackedText text;
  std::vector<Piece> pieces;
};

/// A step that cuts pieces into smaller ones and may rewrite them.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PreTokens& tokens) const = 0;
};

/// Whether the model can work on bytes: ByteLevel is the last step, so its printable characters need not be written.
Alphabet alphabet_of(const JsonView& pre_tokenizer);

/// From the `pre_tokenizer` of a tokenizer.json; null for none. Unknown types are input errors. Under Alphabet::bytes
/// ByteLevel leaves bytes as they are.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonView& json, Alphabet alphabet);

}  // namespace qtrain
