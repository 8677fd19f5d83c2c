#pragma once
#include <cstdint>

#include "core/context.h"
#include "core/tensor.h"

namespace qtrain {

/// Which of the ranks that share the tokens of each micro-batch this one is. The tokens, filled up, are cut into
/// 2 * ranks pieces of equal size, and rank r has pieces r and 2 * ranks - 1 - r one after the other: then causal
/// attention is as much work for each.
struct ContextShare {
  static constexpr int kPieces = 2;  ///< of a rank

  int ranks = 1, rank = 0;

  bool is_shared() const { return ranks > 1; }
  int pieces() const { return kPieces * ranks; }
  /// The number of this rank's first or second piece among all.
  int piece(int which) const { return which == 0 ? rank : pieces() - 1 - rank; }
  /// Of so many tokens in all: those of a piece, those of a rank, and those of all ranks with what fills them up.
  std::int64_t piece_tokens(std::int64_t tokens) const { return (tokens + pieces() - 1) / pieces(); }
  std::int64_t own_tokens(std::int64_t tokens) const { return is_shared() ? kPieces * piece_tokens(tokens) : tokens; }
  std::int64_t all_tokens(std::int64_t tokens) const { return own_tokens(tokens) * ranks; }
};

/// How ranks that share tokens come to each other's keys and values. All of them call the same functions in the same
/// order.
class KeyExchange {
 public:
  virtual ~KeyExchange() = default;

  /// all [T, H, D] in the order of the tokens: `mine` [T / ranks, H, D] of every rank.
  virtual void gather(Ctx& ctx, ConstTensor mine, Tensor all) = 0;
  /// mine: the rows of this rank, added over all ranks in their order. `all` and `spare`, which is as large, are
  /// overwritten.
  virtual void reduce(Ctx& ctx, Tensor all, Tensor spare, const Sink& mine) = 0;
};

/// What attention needs where tokens are shared; the tensors hold keys and values of all ranks, in the order of the
/// tokens, and their gradients: as many elements as the widest layer has.
struct SharedKeys {
  ContextShare share;
  KeyExchange* exchange = nullptr;
  Tensor keys, values, d_keys, d_values;
};

}  // namespace qtrain
