#pragma once
#include <vector>

#include "text/tokenizer/flat_tables.h"
#include "text/tokenizer/model.h"

namespace qtrain {

/// The unigram language model of the tokenizers library: the cheapest path through a piece.
class Unigram final : public TokenModel {
 public:
  Unigram(const JsonView& json, Alphabet alphabet);

  void encode(std::string_view piece, std::vector<PieceToken>& out) const override;
  std::int32_t count() const override { return vocabulary_.count(); }
  std::int32_t end_id() const override { return vocabulary_.end_id(); }
  std::optional<std::int32_t> id_of(std::string_view token) const override;
  std::optional<std::string_view> token(std::int32_t id) const override { return vocabulary_.token(id); }

 private:
  struct Node {
    double score = 0;
    std::int32_t id = -1;
    std::uint32_t begin = kNowhere;
  };
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  std::vector<Node> best_path(std::string_view piece) const;
  void append_run(std::string_view piece, PieceToken run, std::vector<PieceToken>& out) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  PairTable trie_;  // node, byte -> next node, token that ends there or -1
  std::int32_t unk_ = -1;
  double unk_score_ = 0;
  bool byte_fallback_ = false;
};

}  // namespace qtrain
