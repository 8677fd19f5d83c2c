#pragma once
#include <array>
#include <cstdint>

#include "core/context.h"
#include "core/tensor.h"

namespace qtrain {

/// The position of this rank among the ranks that share the tokens of each micro-batch. The tokens, padded, are cut
/// into 2 * ranks pieces of equal size, and rank r holds pieces r and 2 * ranks - 1 - r, so that every rank has the
/// same amount of causal attention to compute.
struct ContextShare {
  static constexpr int kPieces = 2;  ///< per rank

  int ranks = 1, rank = 0;
  std::int64_t key_heads = 0;  ///< key heads gathered at a time; 0: all

  bool is_shared() const { return ranks > 1; }
  int pieces() const { return kPieces * ranks; }
  /// The index of this rank's first or second piece among all pieces.
  int piece(int which) const { return which == 0 ? rank : pieces() - 1 - rank; }
  /// For `tokens` in total: tokens per piece, tokens per rank, and tokens of all ranks including padding.
  std::int64_t piece_tokens(std::int64_t tokens) const { return (tokens + pieces() - 1) / pieces(); }
  std::int64_t own_tokens(std::int64_t tokens) const { return is_shared() ? kPieces * piece_tokens(tokens) : tokens; }
  std::int64_t all_tokens(std::int64_t tokens) const { return own_tokens(tokens) * ranks; }
  /// The number of a layer's `heads` key heads that are gathered at a time.
  std::int64_t heads_at_a_time(std::int64_t heads) const {
    return key_heads == 0 || key_heads > heads ? heads : key_heads;
  }
};

/// Exchanges keys and values between the ranks that share tokens. All of these ranks call the same functions in the
/// same order.
class KeyExchange {
 public:
  virtual ~KeyExchange() = default;

  /// Starts gathering `mine` [T / ranks, H, D] of every rank into `all` [T, H, D] in token order.
  virtual void begin_gather(Ctx& ctx, ConstTensor mine, Tensor all) = 0;
  /// Waits for the oldest gather that was started.
  virtual void finish_gather(Ctx& ctx) = 0;
  /// mine: this rank's rows of the sum over all ranks, in rank order. `all`, and `spare` of the same size, are
  /// overwritten.
  virtual void reduce(Ctx& ctx, Tensor all, Tensor spare, const Sink& mine) = 0;
};

/// Memory for attention if ranks share tokens, sized for the widest layer. If only some heads are gathered at a time,
/// the next heads are gathered while the current ones are computed, and this rank's own are copied out first.
struct KeyBuffers {
  struct Heads {
    Tensor keys, values;          ///< of all ranks, in token order
    Tensor own_keys, own_values;  ///< of this rank
  };
  std::array<Heads, 2> heads;
  Tensor d_keys, d_values;  ///< gradients for all ranks' keys and values, from this rank's queries
  Tensor d_own;             ///< gradients for this rank's keys or values
  Tensor q, y, dy, dq;      ///< this rank's queries and results for the current heads
  std::size_t bytes = 0;    ///< sum over all buffers
};

/// What attention needs if ranks share tokens.
struct SharedKeys {
  ContextShare share;
  KeyExchange* exchange = nullptr;
  KeyBuffers buffers;
};

}  // namespace qtrain
