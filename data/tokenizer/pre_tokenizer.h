#pragma once
#include <memory>
#include <vector>

#include "core/json.h"
#include "data/tokenizer/pieces.h"

namespace qtrain {

/// Text cut into pieces; merges never cross their borders.
struct PreTokens {
  TrackedText text;
  std::vector<Piece> pieces;
  bool at_start = true;  ///< whether the first piece begins the whole text (not behind an added token)
};

/// A step that cuts pieces into smaller ones and may rewrite them.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PreTokens& tokens) const = 0;
};
/// From the `pre_tokenizer` of a tokenizer.json; null for none. Unknown types are input errors.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& json);

}  // namespace qtrain
