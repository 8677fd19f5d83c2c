#pragma once
#include <array>
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
  std::int64_t key_heads = 0;  ///< whose keys are there at a time; 0: all

  bool is_shared() const { return ranks > 1; }
  int pieces() const { return kPieces * ranks; }
  /// The number of this rank's first or second piece among all.
  int piece(int which) const { return which == 0 ? rank : pieces() - 1 - rank; }
  /// Of so many tokens in all: those of a piece, those of a rank, and those of all ranks with what fills them up.
  std::int64_t piece_tokens(std::int64_t tokens) const { return (tokens + pieces() - 1) / pieces(); }
  std::int64_t own_tokens(std::int64_t tokens) const { return is_shared() ? kPieces * piece_tokens(tokens) : tokens; }
  std::int64_t all_tokens(std::int64_t tokens) const { return own_tokens(tokens) * ranks; }
  /// Of the key heads of a layer.
  std::int64_t heads_at_a_time(std::int64_t heads) const {
    return key_heads == 0 || key_heads > heads ? heads : key_heads;
  }
};

/// How ranks that share tokens come to each other's keys and values. All of them call the same functions in the same
/// order.
class KeyExchange {
 public:
  virtual ~KeyExchange() = default;

  /// Begins to bring together all [T, H, D] in the order of the tokens: `mine` [T / ranks, H, D] of every rank.
  virtual void begin_gather(Ctx& ctx, ConstTensor mine, Tensor all) = 0;
  /// Until the one that was begun first is there.
  virtual void finish_gather(Ctx& ctx) = 0;
  /// mine: the rows of this rank, added over all ranks in their order. `all` and `spare`, which is as large, are
  /// overwritten.
  virtual void reduce(Ctx& ctx, Tensor all, Tensor spare, const Sink& mine) = 0;
};

/// Memory for attention where tokens are shared: as many elements as the widest layer needs. Where not all heads are
/// there at a time, those of the next come while those before are computed, and this rank's are copied out of theirs.
struct KeyBuffers {
  struct Heads {
    Tensor keys, values;          ///< of all ranks, in the order of the tokens
    Tensor own_keys, own_values;  ///< of this rank
  };
  std::array<Heads, 2> heads;
  Tensor d_keys, d_values;  ///< gradients of those of all ranks, from the queries of this one
  Tensor d_own;             ///< of those of this rank
  Tensor q, y, dy, dq;      ///< of this rank's queries of those heads
  std::size_t bytes = 0;    ///< of all of them
};

/// What attention needs where tokens are shared.
struct SharedKeys {
  ContextShare share;
  KeyExchange* exchange = nullptr;
  KeyBuffers buffers;
};

}  // namespace qtrain
