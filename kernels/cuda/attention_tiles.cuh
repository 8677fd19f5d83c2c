#pragma once
#include "kernels/cuda/attention.cuh"

/// Where tiles of tokens begin. Each document begins a new one, so that no tile has tokens of two, and the results of a
/// document do not depend on the others of the batch. If documents have few tokens, this would take more tiles than it
/// saves, so tiles then follow each other without regard to documents.
namespace qtrain::ops {

/// Tokens per document, on average, from which on documents begin with a new tile. What fills up a batch does not
/// count, so it changes no bits.
inline constexpr int kTokensPerDocument = 64;

/// The number of documents that begin with a new tile: all, or none. Tokens after the last document are one more.
__device__ __forceinline__ int cut_documents(const AttentionBatch& n) {
  const int used = n.cu[n.segments];
  int low = 0, high = n.segments;  // the number of documents, without empty ones that fill up the batch
  while (low < high) {
    const int middle = (low + high) / 2;
    if (n.cu[middle] < used)
      low = middle + 1;
    else
      high = middle;
  }
  return used / kTokensPerDocument >= low ? low : 0;
}

/// Numbers [begin, end) of tiles.
struct NumberSpan {
  int begin, end;
};

/// Tiles of `rows` tokens of `range`, in which each of `cuts` documents begins with a new one. Every tile has a number,
/// but not every number has a tile: the first one of document d is d + (tokens before it) / rows.
struct DocumentTiles {
  const AttentionBatch& n;
  TokenSpan range;
  int rows, cuts;

  /// Numbers are less than this.
  static int numbers(const AttentionBatch& n, int tokens, int rows) {
    return ceil_div(tokens, rows) + std::min(n.segments, n.tokens / kTokensPerDocument);
  }
  /// The part of document d, 0 <= d <= cuts, in the range.
  __device__ __forceinline__ int begin(int d) const {
    return d == 0 ? range.begin : min(max(n.cu[d], range.begin), range.end);
  }
  __device__ __forceinline__ int end(int d) const { return d == cuts ? range.end : begin(d + 1); }
  /// The number of its first tile.
  __device__ __forceinline__ int first(int d) const { return (begin(d) - range.begin) / rows + d; }
  /// The last document that begins with a token or tile up to some limit, as `begins` tells; others follow it.
  template <class F>
  __device__ __forceinline__ int last_document(const F& begins) const {
    int low = 0, high = cuts;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (begins(middle))
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }
  __device__ __forceinline__ int document(int number) const {
    return last_document([&](int d) { return first(d) <= number; });
  }
  /// The numbers from the first tile to the last one: of documents outside the range, there are none.
  __device__ __forceinline__ NumberSpan used() const {
    const auto document_of = [&](int token) { return last_document([&](int d) { return begin(d) <= token; }); };
    const int last = document_of(range.end - 1);
    return {first(document_of(range.begin)), first(last) + ceil_div(end(last) - begin(last), rows)};
  }
  /// The tokens of a tile of document d; empty if the number has none.
  __device__ __forceinline__ TokenSpan tile(int number, int d) const {
    const int from = begin(d) + (number - first(d)) * rows;
    return {from, min(from + rows, end(d))};
  }
};

/// A tile of queries and the document of its first one.
struct alignas(16) QueryTile {
  TokenSpan tokens, segment;
};
__device__ __forceinline__ QueryTile query_tile(const DocumentTiles& tiles, int number) {
  const TokenSpan tokens = tiles.tile(number, tiles.document(number));
  return {tokens, tokens.begin < tokens.end ? tiles.n.segment(tokens.begin) : tokens};
}

}  // namespace qtrain::ops
